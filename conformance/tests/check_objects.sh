#!/bin/sh
# Looks into what was built. Usage, with NM and OBJDUMP in the environment when they are not the plain names:
#   check_objects.sh symbols OBJECT...        each kernel object offers its one symbol and asks for nothing unusual
#   check_objects.sh instructions OBJECT...   each holds the instructions of its lane kind and flavour, no others
#   check_objects.sh loops OBJECT...          in optimised ones, the loops over products keep their sums in registers
#   check_objects.sh static LIBRARY           every strong global symbol of the static library is exattn's
#   check_objects.sh shared LIBRARY HEADER    the shared library exports the functions of the header, no more, no less
# A kernel object is named exattn_kernel_<lanes>_<flavour>.o.
set -eu
export LC_ALL=C
NM=${NM:-nm}
OBJDUMP=${OBJDUMP:-objdump}
failures=0

fail() {
  echo "FAIL $*"
  failures=$((failures + 1))
}

# What a kernel may call: memory routines that compilers put in by themselves, in plain, checked and stack-protected
# builds, and assertions. Nothing that computes, so nothing of libm.
allowed_undefined='^(memcpy|memmove|memset|__memcpy_chk|__memmove_chk|__memset_chk|__stack_chk_fail|__stack_chk_guard|__assert_fail|_GLOBAL_OFFSET_TABLE_)$'

check_symbols() {
  name=$(basename "$1" .o)
  defined=$("$NM" --defined-only --extern-only "$1" | awk '{ print $NF }')
  [ "$defined" = "$name" ] || fail "$name: defined global symbols are '$(echo $defined)', not '$name'"
  weak=$("$NM" "$1" | awk '$(NF - 1) ~ /^[WwVvu]$/ { print $NF }')
  [ -z "$weak" ] || fail "$name: weak or unique symbols: $(echo $weak)"
  undefined=$("$NM" --undefined-only "$1" | awk '{ print $NF }' | grep -Ev "$allowed_undefined" || true)
  [ -z "$undefined" ] || fail "$name: undefined symbols: $(echo $undefined)"
}

# How many instructions of a listing have a mnemonic, or a whole line, that matches.
mnemonics() { awk -v pattern="$1" '$1 ~ pattern { n++ } END { print n + 0 }' "$listing"; }
lines() { awk -v pattern="$1" '$0 ~ pattern { n++ } END { print n + 0 }' "$listing"; }

absent() { # description, count
  [ "$2" -eq 0 ] || fail "$name: $2 instructions that are $1"
}
present() {
  [ "$2" -gt 0 ] || fail "$name: no instruction that is $1"
}

check_instructions() {
  name=$(basename "$1" .o)
  lanes=$(echo "$name" | cut -d_ -f3)
  flavour=$(echo "$name" | cut -d_ -f4)
  # One instruction a line, mnemonic first: what follows the address, of GNU's objdump or LLVM's. The format is named in
  # the first lines.
  "$OBJDUMP" -d --no-show-raw-insn "$1" >"$work/full"
  sed -n 's/^ *[0-9a-f]*: *\t//p' "$work/full" | tr '\t' ' ' >"$listing"
  count=$(wc -l <"$listing")
  [ "$count" -ge 100 ] || fail "$name: only $count instructions were disassembled"

  case $(sed -n 's/.*file format //p' "$work/full") in
  *x86-64)
    fused='^v?fn?m(add|sub)'
    approximate='^v?(rcp|rsqrt|exp2)'
    absent "x87" "$(mnemonics '^f(ld|st|add|mul|div|sub|chs|abs|ild|ist|com|sqrt|xch)')"
    case $lanes in
    scalar | sse2)
      absent "VEX or EVEX encoded" "$(mnemonics '^v[a-z]|^k(mov|or|and|xor|not)')"
      absent "wider than 128 bits" "$(lines '%[yz]mm')"
      absent "beyond SSE2" "$(mnemonics '^(addsub|h(add|sub)p|movs[hl]dup|movddup|lddqu|p(abs|sign|shufb|alignr|hadd|hsub|mulhrsw|maddubsw)|blend|pblend|round|dpp|insertps|extractps|p(ins|ext)r[bdq]|ptest|pmulld|pmuldq|pm(ax|in)(sb|sd|uw|ud)|pmov[sz]x|packusdw|pcmp(eqq|gtq|[ei]str)|movntdqa|phminposuw|mpsadbw|popcnt|crc32|lzcnt|bextr|bls[imr]|pdep|pext|rorx|s[ah][lr]x|mulx|movbe|ad[co]x)|^andn[lq]?$')"
      ;;
    avx2)
      absent "EVEX encoded" "$(lines '%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\\{%k|%k[0-7]')"
      present "a 256-bit multiplication, fused or not" "$(lines '^v(fm|fnm|mul).*ps .*%ymm')"
      ;;
    avx512 | avx512n)
      present "a 512-bit multiplication, fused or not" "$(lines '^v(fm|fnm|mul).*ps .*%zmm')"
      ;;
    esac
    [ "$lanes" = sse2 ] && present "a 4-lane multiplication" "$(mnemonics '^mulps$')"
    ;;
  *aarch64)
    fused='^(fn?m(add|sub)|fml[as]l?2?|fmlal[bt]?|fmls|bfml|fcmla)$'
    approximate='^(frecp|frsqrt|urecpe|ursqrte)'
    [ "$lanes" = neon64 ] && present "a 4-lane multiplication, fused or not" "$(lines '^(fmul|fmla|fmls)[[:space:]].*v[0-9]+\\.4s')"
    absent "SVE" "$(lines '[[:space:],{]z[0-9]+\\.[bhsdq]')"
    ;;
  *)
    fail "$name: no rules for the format '$(sed -n 's/.*file format //p' "$work/full")'"
    return
    ;;
  esac

  absent "approximations" "$(mnemonics "$approximate")"
  case $flavour-$lanes in
  exact-* | fast-scalar) absent "fused multiply-adds" "$(mnemonics "$fused")" ;;
  fast-*) present "a fused multiply-add" "$(mnemonics "$fused")" ;;
  esac
}

# The products of the scores and of the values are each summed in an innermost loop. Such loops add as often as they
# multiply, or fuse both; exponentials do not. Those for edges of blocks, with fewer products, may do as they can.
check_loops() {
  name=$(basename "$1" .o)
  "$OBJDUMP" -dC --no-show-raw-insn "$1" | awk -f "$(dirname "$0")/inner_loops.awk" |
    awk -F'\t' '$4 == $5 && $4 + $6 >= 16' >"$work/loops"
  count=$(wc -l <"$work/loops")
  [ "$count" -ge 2 ] || fail "$name: $count innermost loops over products were found"
  spilling=$(awk -F'\t' '$8 + $9 > 0 {
    printf "\n  %s at %s: %d stores of vectors to the stack, %d calls", $1, $2, $8, $9
  }' "$work/loops")
  [ -z "$spilling" ] || fail "$name: innermost loops over products:$spilling"
  # A vector operation that is called costs more than itself: registers are spilled for it.
  called=$("$NM" --defined-only "$1" | grep -E ' [tT] _ZNK?5xsimd' | sed -n '1,3p' || true)
  [ -z "$called" ] || fail "$name: functions of xsimd that were not inlined, among them:
$called"
}

check_static() {
  strangers=$("$NM" --defined-only --extern-only "$1" | awk 'NF == 3 && $2 !~ /^[WVu]$/ { print $3 }' |
    grep -Ev '^(exattn_|_ZT?[A-Z]*N?K?6exattn)' || true)
  [ -z "$strangers" ] || fail "$1: global symbols outside exattn: $(echo $strangers)"
  "$NM" --defined-only --extern-only "$1" | grep -q ' T exattn_attention$' || fail "$1: exattn_attention is not in it"
}

check_shared() {
  "$NM" -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $2, $3 }' | sort >"$work/exported"
  tr '\n' ' ' <"$2" | sed 's/EXATTN_API/\n&/g' | sed -n 's/^EXATTN_API [a-z0-9_ *]*\(exattn_[a-z0-9_]*\)(.*/T \1/p' |
    sort >"$work/declared"
  [ "$(wc -l <"$work/declared")" -ge 10 ] || fail "$2: only $(wc -l <"$work/declared") functions were found in it"
  diff "$work/declared" "$work/exported" >"$work/diff" ||
    fail "$1: exports differ (< in the header, > in the library):
$(cat "$work/diff")"
  soname=$("$OBJDUMP" -p "$1" | awk '$1 == "SONAME" { print $2 }')
  [ "$soname" = "libexattn.so.0" ] || fail "$1: its SONAME is '$soname', not libexattn.so.0"
}

kind=${1:-}
[ $# -ge 2 ] || {
  echo "usage: check_objects.sh symbols|instructions|loops|static|shared FILE..." >&2
  exit 2
}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
listing=$work/listing
case $kind in
symbols | instructions | loops)
  for object in "$@"; do
    "check_$kind" "$object"
  done
  echo "$kind of $# kernel objects looked at"
  ;;
static) check_static "$1" ;;
shared) check_shared "$1" "$2" ;;
*)
  echo "check_objects.sh: unknown check '$kind'" >&2
  exit 2
  ;;
esac
[ "$failures" -eq 0 ]
