# bash completion for exattn: what each command's --help says, so that it is never behind it.
_exattn() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} word help type
  local -a path=("${COMP_WORDS[0]}") values=()

  # The subcommands on the line so far.
  help=$("${path[@]}" --help 2>/dev/null)
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if sed -n '/^Subcommands:/,/^$/p' <<<"$help" | grep -q "^  $word "; then
      path+=("$word")
      help=$("${path[@]}" --help 2>/dev/null)
    fi
  done

  # The value of the option before: one of those that it names, a lane kind, or a file.
  if [[ $previous == -* ]]; then
    type=$(sed -nE "s/^ +([^ ]*,)?$previous(,[^ ]*)? ([^ ]+).*/\\3/p" <<<"$help" | head -n 1)
    case ${type%%=*} in
    NAME | NAMES) mapfile -t values < <("${path[0]}" info 2>/dev/null | sed -nE 's/^([a-z][a-z0-9]*) +[0-9]+ .*/\1/p; $a auto') ;;
    *'|'*) mapfile -t values < <(tr '|' '\n' <<<"${type%%=*}" | grep -x '[a-z0-9]*') ;;
    esac
    case ${type%%=*} in
    *FILE* | DIR | TEXT) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${values[*]}" -- "$current") ;;
    esac
    # The first word behind a flag is no value.
    [[ ${#COMPREPLY[@]} -gt 0 || $type =~ ^[A-Z] ]] && return
  fi

  if [[ $current == -* ]]; then
    mapfile -t values < <(sed -nE 's/^ +(-[^ ]*).*/\1/p' <<<"$help" | tr ',' '\n')
  else
    mapfile -t values < <(sed -n '/^Subcommands:/,/^$/p' <<<"$help" | sed -nE 's/^  ([a-z]+) .*/\1/p')
  fi
  mapfile -t COMPREPLY < <(compgen -W "${values[*]}" -- "$current")
  [[ ${#COMPREPLY[@]} -gt 0 || ${#values[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _exattn exattn
