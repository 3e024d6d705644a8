"""Shell completion: the scripts of bash, zsh and fish, run in these shells where they are installed, and where they are put."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

from edgellm.cli import app
from edgellm.cli.completion import SCRIPTS, all_names, catalogue_names, model_names

PROGRAMS = Path(sys.executable).parent
DRIVERS = {  # what a shell offers after the line in $LINE
    "bash": """
source "$SCRIPT"
COMP_LINE=$LINE; COMP_POINT=${#LINE}; COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_edgellm_completion
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { : }
_describe() { print -rl -- "${(@)offered}" }
_files() { print FILES }
source "$SCRIPT"
words=(${(z)LINE}); [[ $LINE == *' ' ]] && words+=('')
CURRENT=$#words
_edgellm
""",
    "fish": "source $SCRIPT; complete -C $LINE | string replace -r '\\t.*' ''",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HF_HUB_CACHE", "EDGELLM_CONFIG", "EDGELLM_DATA", "OLLAMA_MODELS", "LLAMA_CACHE", "HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model = tiny_model(tmp_path / "here/tiny.gguf", "llama", "F32", tokenizer="bpe")
    assert app.run(["import", str(model), "travel"]) == 0
    return tmp_path


def offered(shell: str, line: str, folder: Path) -> list[str]:
    """The completions of `line`."""
    (folder / "script").write_text(SCRIPTS[shell])
    program = [shell, "--norc"] if shell == "bash" else [shell, "-f"] if shell == "zsh" else [shell, "--no-config"]
    done = subprocess.run(
        [*program, "-c", DRIVERS[shell]],
        env=os.environ | {"LINE": line, "SCRIPT": str(folder / "script")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_offers_names_options_and_files(shell: str, home: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    if shell == "zsh":
        assert offered(shell, "edgellm chat tr", home) == ["travel:own folder"]
        assert offered(shell, "edgellm pull qwen3-0.6b:", home)[0].startswith("qwen3-0.6b\\:Q8_0:")
        assert offered(shell, "edgellm import ti", home) == ["FILES"]
        return
    assert offered(shell, "edgellm chat tr", home) == ["travel"]
    assert offered(shell, "edgellm chat ti", home) == ["tiny.gguf"]
    assert offered(shell, "edgellm tok", home) == ["tokenize"]
    assert offered(shell, "edgellm run travel --top-", home) == ["--top-k", "--top-p"]
    assert offered(shell, "edgellm quantize travel out.gguf iq4", home) == ["iq4_nl", "iq4_xs"]
    assert offered(shell, "edgellm convert folder out.gguf --type Q4", home) == ["Q4_0", "Q4_1"]
    types = ["Q8_0", "Q4_K_M"] if shell == "bash" else ["qwen3-0.6b:Q8_0", "qwen3-0.6b:Q4_K_M"]
    assert sorted(offered(shell, "edgellm pull qwen3-0.6b:", home)) == sorted(types)


def test_names_that_are_offered() -> None:
    assert model_names("t") == [("travel", "own folder"), ("tiny.gguf", "file")]
    assert ("guide", "edgellm") in model_names("") and model_names("qwen3-0") == []
    assert [name for name, _ in catalogue_names("llama3.2")] == ["llama3.2-1b", "llama3.2-3b"]
    assert {"travel", "qwen3-0.6b"} <= {name for name, _ in all_names("")}
    assert model_names("no/such/folder") == []


@pytest.mark.parametrize(
    "shell, script, start",
    [
        ("bash", "xdg_config_home/edgellm/completion.bash", "home/.bashrc"),
        ("zsh", "xdg_config_home/edgellm/completion.zsh", "home/.zshrc"),
        ("fish", "xdg_config_home/fish/completions/edgellm.fish", None),
    ],
)
def test_installing(
    shell: str, script: str, start: str | None, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZDOTDIR", raising=False)
    if start:
        (home / start).write_text("alias x=y")
    assert app.run(["--install-completion", shell]) == app.run(["--install-completion", shell]) == 0
    assert str(home / script) in capsys.readouterr().err and (home / script).read_text() == SCRIPTS[shell]
    if start:
        line = f"[ -r '{home / script}' ] && source '{home / script}'  # completion of edgellm\n"
        assert (home / start).read_text() == "alias x=y\n" + line


def test_the_shell_is_the_one_asked_for_or_the_users(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert app.run(["--show-completion"]) == 0 and "#compdef" in capsys.readouterr().out
    assert app.run(["--show-completion", "fish"]) == 0 and "complete -c" in capsys.readouterr().out
    assert app.run(["--show-completion", "tcsh"]) == 2 and "give one of bash, zsh, fish" in capsys.readouterr().err
