# The innermost loops of a disassembly (objdump -dC --no-show-raw-insn; x86-64 in AT&T syntax, or aarch64), one a line,
# with tabs: function, address, instructions, vector multiplications, additions, fused multiply-adds, loads from and
# stores to the stack, calls. A loop is what lies between a backward jump and its target, an innermost one if no other
# lies in it. The stack is what a fixed distance from the stack or frame pointer leads to: where spilled registers are.
# An array on the stack that is gone through has another address each time, and is not counted.

function number(hex, i, n) {
  n = 0
  for (i = 1; i <= length(hex); ++i) {
    n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
  }
  return n
}

function plain(name) {
  while (gsub(/<[^<>]*>/, "", name)) {
  }
  sub(/\(.*/, "", name)
  sub(/^.* /, "", name)
  return name
}

# What an instruction is, in the order of the columns after "instructions".
function kinds(text, to, stack, store) {
  for (k = 1; k <= 6; ++k) {
    to[k] = 0
  }
  if (arm) {
    to[1] = text ~ /^fmul /
    to[2] = text ~ /^f(add|sub) /
    to[3] = text ~ /^f(mla|mls|madd|msub) /
    stack = text ~ /^(ld|st)[a-z]+ [bhsdqv][0-9]/ && text ~ /\[(sp|x29)(, #-?[0-9]+)?\]/
    store = text ~ /^st/
    to[6] = text ~ /^bl/
  } else {
    to[1] = text ~ /^v?mul[ps]s /
    to[2] = text ~ /^v?(add|sub)[ps]s /
    to[3] = text ~ /^vfn?m(add|sub)[0-9]*[ps]s /
    stack = text ~ /%[xyz]mm/ && text ~ (frame ? "[ ,][-0-9a-fx]*\\(%r[sb]p\\)" : "[ ,][-0-9a-fx]*\\(%rsp\\)")
    store = text ~ /\)(\{[^}]*\})?$/ # the destination comes last
    to[6] = text ~ /^call/
  }
  to[4] = stack && !store
  to[5] = stack && store
}

function flush_function(i, j, inner, k, sum, what) {
  for (i = 1; i <= jumps; ++i) {
    inner = 1
    for (j = 1; j <= jumps && inner; ++j) {
      inner = j == i || to[j] < to[i] || from[j] > from[i] || (to[j] == to[i] && from[j] == from[i] && j > i)
    }
    if (!inner) {
      continue
    }
    for (k = 1; k <= 6; ++k) {
      sum[k] = 0
    }
    for (j = line_at[to[i]]; j <= line_at[from[i]]; ++j) {
      kinds(line[j], what)
      for (k = 1; k <= 6; ++k) {
        sum[k] += what[k]
      }
    }
    printf "%s\t%x\t%d", plain(name), to[i], line_at[from[i]] - line_at[to[i]] + 1
    for (k = 1; k <= 6; ++k) {
      printf "\t%d", sum[k]
    }
    print ""
  }
  count = jumps = frame = 0
  split("", line_at)
}

/file format/ { arm = /aarch64/ }
/^[0-9a-f]+ <.*>:$/ {
  flush_function()
  name = $0
  sub(/^[0-9a-f]+ </, "", name)
  sub(/>:$/, "", name)
}
/^ *[0-9a-f]+: *\t/ {
  address = $1
  sub(/:.*/, "", address)
  address = number(address)
  text = $0
  sub(/^ *[0-9a-f]+: *\t/, "", text)
  gsub(/[ \t]+/, " ", text)
  target = ""
  if (arm ? text ~ /^(b|b\.[a-z]+|cbn?z|tbn?z) / : text ~ /^j[a-z]+ /) {
    target = text
    sub(/ <.*/, "", target)
    sub(/^.* (0x)?/, "", target)
  }
  sub(arm ? " *(//|<).*" : " *(#|<).*", "", text)
  if (text ~ /^mov %rsp,%rbp/) {
    frame = 1
  }
  line[++count] = text
  line_at[address] = count
  if (target ~ /^[0-9a-f]+$/ && number(target) < address && number(target) in line_at) {
    to[++jumps] = number(target)
    from[jumps] = address
  }
}
END { flush_function() }
