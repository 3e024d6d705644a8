"""Completion in bash, zsh and fish: the scripts, where they are installed, and the names of models that they offer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from edgellm.errors import OptionError

# All three ask in fish's form (a word, a tab, its help) and leave files to the shell where edgellm has nothing to offer.
_ASK = "COLUMNS=9999 _EDGELLM_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS"
SCRIPTS = {
    "bash": f"""\
_edgellm_completion() {{
    local line=${{COMP_LINE:0:COMP_POINT}} IFS=$'\\n'
    local word=${{line##* }}
    COMPREPLY=( $({_ASK}="$line" edgellm 2>/dev/null | cut -f1) )
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then      # bash completes what follows the last colon
        COMPREPLY=( "${{COMPREPLY[@]#"${{word%"${{word##*:}}"}}"}}" )
    fi
}}
complete -o default -F _edgellm_completion edgellm
""",
    "zsh": f"""\
#compdef edgellm
_edgellm() {{
    local -a offered
    local word help
    while IFS=$'\\t' read -r word help; do
        [[ -n $word ]] && offered+=("${{word//:/\\\\:}}${{help:+:$help}}")
    done < <({_ASK}="${{(j: :)words[1,CURRENT]}}" edgellm 2>/dev/null)
    if (( $#offered )); then _describe edgellm offered; else _files; fi
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _edgellm edgellm
""",
    "fish": f"""\
function __edgellm_offered
    {_ASK}=(commandline -cp | string collect) edgellm 2>/dev/null
end
complete -c edgellm -f -n 'count (__edgellm_offered) >/dev/null' -a '(__edgellm_offered)'
""",
}
OPTIONS = ("--show-completion", "--install-completion")


def wanted(arguments: Sequence[str]) -> tuple[str, str] | None:
    """The option of `OPTIONS` that a command line begins with, and the shell after it or the user's; None for other lines.

    Raises OptionError for shells that have no script here.
    """
    if not arguments or arguments[0] not in OPTIONS:
        return None
    shell = arguments[1] if len(arguments) > 1 else os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SCRIPTS:
        raise OptionError(f"{arguments[0]} {shell}: give one of {', '.join(SCRIPTS)}")
    return arguments[0], shell


def install(shell: str) -> Path:
    """Write a shell's script where the shell reads it at its start; returns the file. Raises OptionError."""
    home = Path.home()
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    try:
        if shell == "fish":
            return _written(folder / "fish/completions/edgellm.fish", SCRIPTS[shell])
        script = _written(folder / "edgellm" / f"completion.{shell}", SCRIPTS[shell])
        start = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
        line = f"source '{script}'  # completion of edgellm\n"
        old = start.read_text(encoding="utf-8") if start.exists() else ""
        if line not in old:  # also behind the condition
            line = f"[ -r '{script}' ] && {line}"
            with start.open("a", encoding="utf-8") as file:
                file.write(("" if old.endswith("\n") or not old else "\n") + line)
        return script
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--install-completion {shell}: {error}; put what --show-completion {shell} prints where your shell reads it"
        ) from error


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """The models on this machine, and the .gguf files of the folder that is being typed."""
    from edgellm.catalogue.stores import scan

    here = [(model.found.name, model.store) for model in scan()]
    return [(name, store) for name, store in here if name.startswith(incomplete)] + [(path, "file") for path in _files(incomplete)]


def catalogue_names(incomplete: str) -> list[tuple[str, str]]:
    """The names of the catalogue, and those with a type once a colon was typed."""
    from edgellm.catalogue.registry import entries

    names = [
        (entry.name, f"{entry.parameters} parameters, {file.size / 1e9:.1f} GB")
        for entry in entries().values()
        if (file := entry.file()) is not None and not file.bundled
    ]
    if ":" in incomplete:
        names = [(f"{entry.name}:{file.type}", f"{file.size / 1e9:.1f} GB") for entry in entries().values() for file in entry.files]
    return [(name, what) for name, what in names if name.startswith(incomplete)]


def all_names(incomplete: str) -> list[tuple[str, str]]:
    """Both."""
    here = model_names(incomplete)
    known = {name for name, _ in here}
    return here + [(name, what) for name, what in catalogue_names(incomplete) if name not in known]


def type_names(incomplete: str) -> list[tuple[str, str]]:
    """The types that `quantize` makes, and how large they are; in small letters where these are typed."""
    from edgellm.tools.mixes import MIXES

    named = [(mix.name.lower() if incomplete.islower() else mix.name, mix.about) for mix in MIXES.values()]
    return [(name, about) for name, about in named if name.startswith(incomplete)]


def plain_type_names(incomplete: str) -> list[str]:
    """The types that `convert` writes."""
    from edgellm.tools.convert import TARGETS

    return [name for name in TARGETS if name.startswith(incomplete)]


def session_names(incomplete: str) -> list[str]:
    """Saved chats."""
    from edgellm.cli.chat.session_store import SessionStore

    return [name for name in SessionStore().names() if name.startswith(incomplete)]


def _files(incomplete: str) -> Iterator[str]:
    folder, _, begun = incomplete.rpartition("/")
    try:
        inside = sorted(os.listdir(os.path.expanduser(folder) if folder else "/" if incomplete.startswith("/") else "."))
    except OSError:
        return
    prefix = incomplete[: len(incomplete) - len(begun)]
    yield from (prefix + name for name in inside if name.startswith(begun) and name.endswith(".gguf"))


def show(option: str, shell: str) -> None:
    """Do what one of `OPTIONS` says."""
    if option == "--show-completion":
        typer.echo(SCRIPTS[shell], nl=False)
    else:
        typer.echo(f"completion for {shell} is in {install(shell)}; it begins with the next shell", err=True)
