"""The scripts of `cspo completion`: one core for bash and zsh, and fish's list of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cspo.commands.completion_words import Described, Values

Commands = Mapping[str, Described]
Names = Mapping[str, Sequence[str]]
RUN_GLOBS = ("runs/*", "*")  # where run folders are looked for: those with a config.toml

# Sets what may stand next: _cspo_kind is "words", "run", "folder" or "file", _cspo_words the words
# and _cspo_flags the options. The arguments are all words before the one that is being typed.
CORE = """\
_cspo_find() {
    local word command= algo=cspo before=
    _cspo_kind=words _cspo_words= _cspo_flags=
    shift
    for word in "$@"; do
        case $word in
            --algo=*) algo=${word#--algo=} ;;
            -*|=) ;;
            *)
                if [ "$before" = --algo ]; then algo=$word
                elif [ -z "$command" ]; then command=$word
                else
                    case "$command $word" in
                        @NESTED@) command="$command $word" ;;
                    esac
                fi ;;
        esac
        [ "$word" = = ] || before=$word
    done
    case "$command $before" in
@VALUES@
    esac
    case "$command" in
@ARGUMENTS@
    esac
    case "$command $algo" in
@OWN@
    esac
}
_cspo_runs() {
    local file
    for file in @GLOBS@; do
        if [ -f "$file/config.toml" ]; then printf '%s\\n' "$file"; fi
    done
}
"""

BASH = """\
# bash completion of cspo; written by `cspo completion bash`
@CORE@
_cspo() {
    local IFS=$' \\t\\n' current=${COMP_WORDS[COMP_CWORD]} _cspo_kind _cspo_words _cspo_flags
    if [ "$current" = = ]; then current=; fi
    _cspo_find "${COMP_WORDS[@]:0:COMP_CWORD}"
    case $current in -*) _cspo_kind=words _cspo_words=$_cspo_flags ;; esac
    COMPREPLY=($(compgen -W "$_cspo_words" -- "$current"))
    case $_cspo_kind in
        run) IFS=$'\\n'; COMPREPLY+=($(compgen -W "$(_cspo_runs)" -- "$current")) ;;
        folder) compopt -o dirnames ;;
        file) compopt -o default ;;
    esac
    if [ "$_cspo_kind" = run ] && [ ${#COMPREPLY[@]} = 0 ]; then compopt -o dirnames; fi
}
complete -F _cspo cspo
"""

ZSH = """\
#compdef cspo
# zsh completion of cspo; written by `cspo completion zsh`
@CORE@
_cspo() {
    local _cspo_kind _cspo_words _cspo_flags
    if [[ $PREFIX == --*=* ]]; then
        _cspo_find "${(@)words[1,CURRENT-1]}" "${PREFIX%%=*}"
        compset -P '*='
    else
        _cspo_find "${(@)words[1,CURRENT-1]}"
        if [[ $PREFIX == -* ]]; then _cspo_kind=words _cspo_words=$_cspo_flags; fi
    fi
    local -a found
    found=(${=_cspo_words})
    if [[ $_cspo_kind == run ]]; then found+=(${(f)"$(setopt nullglob; _cspo_runs)"}); fi
    (( $#found )) && compadd -- $found
    case $_cspo_kind in
        run|folder) _files -/ ;;
        file) _files ;;
    esac
}
if [ "$funcstack[1]" = _cspo ]; then _cspo "$@"; else compdef _cspo cspo; fi
"""

FISH_RUNS = """\
# fish completion of cspo; written by `cspo completion fish`
function __cspo_runs
    for file in @GLOBS@
        test -f $file/config.toml; and echo $file
    end
end
function __cspo_command
    set -l words (commandline -opc | string match -v -- '-*')
    set -l typed (string join ' ' -- $words[2..-1])
    test "$typed" = "$argv[1]"; and return
    not set -q argv[2]; and string match -q -- "$argv[1] *" "$typed"
end
function __cspo_algo
    set -l words (commandline -opc)
    set -l found (string replace -f -- --algo= '' $words)
    if set -l place (contains -i -- --algo $words)
        set -l next (math $place + 1)
        set found $words[$next]
    end
    set -q found[1]; or set found cspo
    test "$found[1]" = $argv[1]
end
complete -c cspo -f
"""


def script(shell: str, commands: Commands, names: Names) -> str:
    """Return the script for a shell: "bash", "zsh" or "fish"."""
    if shell == "fish":
        return "\n".join(
            [FISH_RUNS.replace("@GLOBS@", " ".join(RUN_GLOBS)), *_fish(commands, names)]
        )
    template = {"bash": BASH, "zsh": ZSH}[shell]
    return template.replace("@CORE@", _core(commands, names))


def _core(commands: Commands, names: Names) -> str:
    plain = {name: one for name, one in commands.items() if "--algo" not in name}
    nested = "|".join(f'"{name}"' for name in plain if " " in name)
    first = " ".join(name for name in plain if " " not in name)
    arguments = [f'        "") _cspo_words="{first}" _cspo_flags="--help --version" ;;']
    for name, one in plain.items():
        flags = " ".join(flag.name for flag in one.flags)
        answer = f'{_answer(one.argument, names)} _cspo_flags="{flags}"'
        arguments.append(f'        "{name}") {answer} ;;')
    values: dict[str, dict[str, None]] = {}  # places by what may stand there
    for name, one in commands.items():
        command = name.partition(" --algo ")[0]
        for flag in one.flags:
            if flag.values:
                places = values.setdefault(_answer(flag.values, names), {})
                places[f'"{command} {flag.name}"'] = None
    own = [
        f'        "{name.replace(" --algo", "")}") _cspo_flags="$_cspo_flags {flags}" ;;'
        for name, one in commands.items()
        if "--algo" in name and (flags := " ".join(flag.name for flag in one.flags))
    ]
    filled = {
        "@NESTED@": nested,
        "@VALUES@": "\n".join(
            f"        {'|'.join(places)}) {answer}; return ;;" for answer, places in values.items()
        ),
        "@ARGUMENTS@": "\n".join(arguments),
        "@OWN@": "\n".join(own),
        "@GLOBS@": " ".join(RUN_GLOBS),
    }
    text = CORE
    for mark, content in filled.items():
        text = text.replace(mark, content)
    return text


def _answer(values: Values, names: Names) -> str:
    """Return the assignments that tell what may stand somewhere."""
    words, kind = _words(values, names), "words"
    if values in ("run", "folder", "file"):
        kind = str(values)
    elif values == "study":
        kind = "file"
    return f'_cspo_kind={kind} _cspo_words="{" ".join(words)}"'


def _words(values: Values, names: Names) -> Sequence[str]:
    return values if isinstance(values, tuple) else names.get(values, ())


def _fish(commands: Commands, names: Names) -> Iterator[str]:
    """Yield one rule for each command, option and argument."""
    for name, one in commands.items():
        if " " not in name:
            first = "complete -c cspo -n 'test (count (commandline -opc)) -eq 1'"
            yield f"{first} -a {name} -d {_quoted(one.summary)}"
        command, _, algo = name.partition(" --algo ")
        nested = any(other.startswith(f"{name} ") for other in commands) and not one.flags
        condition = f'__cspo_command "{command}"{" exactly" * nested}'
        if algo:
            condition += f"; and __cspo_algo {algo}"
        rule = f"complete -c cspo -n {_quoted(condition)}"
        if one.argument and not algo:
            yield f"{rule} {_fish_values(one.argument, names)}".rstrip()
        for flag in one.flags:
            value = f" {_fish_values(flag.values, names, ' -x')}" if flag.values else ""
            yield f"{rule} -l {flag.name[2:]}{value.rstrip()} -d {_quoted(flag.explanation)}"


def _fish_values(values: Values, names: Names, needed: str = "") -> str:
    """Return what a rule says of values; `needed` is what makes one needed, and no file."""
    words = _quoted(" ".join(_words(values, names)))
    with_files = "-r -F" if needed else "-F"
    return {
        "run": f'{needed} -a "(__cspo_runs)"',
        "folder": f'{needed} -a "(__fish_complete_directories)"',
        "file": with_files,
        "study": f"{with_files} -a {words}",
        "any": needed,
    }.get(values if isinstance(values, str) else "", f"{needed} -a {words}")


def _quoted(text: str) -> str:
    """Return a text in fish's quotes, which keep a backslash before a quote."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
