"""`gateway completion`: a script by which a shell completes commands, options and choices (guarantee §13.9).

It is generated from the parser, so that both always agree. The shell itself completes file names.
"""

import argparse
from collections.abc import Iterator

BASH = """_gateway() {
  local at="" word words=""
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$at $word" in
%(commands)s    esac
  done
  case "$at ${COMP_WORDS[COMP_CWORD-1]}" in
%(values)s    *) case "$at" in
%(words)s    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _gateway gateway
"""
ZSH = """#compdef gateway
_gateway() {
  local at="" word words_here=""
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
%(commands)s    esac
  done
  case "$at ${words[CURRENT-1]}" in
%(values)s    *) case "$at" in
%(words)s    esac ;;
  esac
  compadd -- ${=words_here} || _files
}
if [[ "$funcstack[1]" == _gateway ]]; then _gateway "$@"; else compdef _gateway gateway; fi
"""
FISH = """function __gateway_words
  set -l at ""
  set -l before (commandline -opc)
  for word in $before
    switch "$at $word"
%(commands)s    end
  end
  switch "$at $before[-1]"
%(values)s    case "*"
      switch "$at"
%(words)s      end
  end
end
complete -c gateway -a "(__gateway_words)"
"""
Command = tuple[str, list[str], dict[str, list[str]]]
"""The words of a command after `gateway`, each after a blank; the words that may follow; the values of its options."""


def shell_completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Returns the completion script for `bash`, `zsh` or `fish`."""
    found = list(_commands(parser, ""))
    names = [name for name, _, _ in found if name]
    valued = [(f"{name} {option}", given) for name, _, values in found for option, given in values.items()]
    if shell == "fish":
        commands = "".join(f'      case "{name}"\n        set at "{name}"\n' for name in names)
        values = "".join(_fish(name, given) for name, given in valued)
        words = "".join(_fish(name, given) for name, given, _ in found)
        return FISH % {"commands": commands, "values": values, "words": words}
    to = "words" if shell == "bash" else "words_here"
    commands = "".join(f'      "{name}") at="{name}" ;;\n' for name in names)
    values = "".join(f'    "{name}") {to}="{" ".join(given)}" ;;\n' for name, given in valued)
    words = "".join(f'      "{name}") {to}="{" ".join(given)}" ;;\n' for name, given, _ in found)
    return (BASH if shell == "bash" else ZSH) % {"commands": commands, "values": values, "words": words}


def _fish(name: str, given: list[str]) -> str:
    return f'    case "{name}"\n' + (f"      printf '%s\\n' {' '.join(given)}\n" if given else "")


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[Command]:
    words: list[str] = []
    values: dict[str, list[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words += action.choices
            for word, command in action.choices.items():
                yield from _commands(command, f"{name} {word}")
        elif action.option_strings:
            words += [option for option in action.option_strings if option.startswith("--")]
            if action.nargs != 0:
                values |= {option: list(map(str, action.choices or ())) for option in action.option_strings}
        else:
            words += map(str, action.choices or ())
    yield name, words, values
