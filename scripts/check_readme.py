"""Keeps README.md true: runs its console commands and its Python examples on a tiny model, and looks up the names in it.

A ```console block is run line by line where a line starts with "$ "; each must succeed and print something. A ```python
block is run as a program. `model.gguf` and `notes.txt` are there for them; chats get one message. In all blocks, names of
models after `edgellm chat` and its kin must be in the catalogue.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"edgellm (?:chat|run|show|tokenize|bench|pull|fit) ([a-z0-9][\w.:-]*)")
SECONDS = 120


def main() -> None:
    from edgellm.catalogue import entry_of

    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    names = {name for _, text in blocks for name in NAME.findall(text) if not name.startswith("hf:") and not name.endswith(".gguf")}
    if unknown := [name for name in names if entry_of(name) is None]:
        raise SystemExit(f"README.md names models that are not in models.toml: {', '.join(unknown)}")
    lines = [line for kind, text in blocks if kind == "console" for line in text.splitlines()]
    programs = [("sh", "-c", line[2:]) for line in lines if line.startswith("$ ")]
    programs += [(sys.executable, "-c", text) for kind, text in blocks if kind == "python"]
    if len(programs) < 5:
        raise SystemExit(f"README.md has only {len(programs)} commands and examples to run: is a block marked wrongly?")
    with tempfile.TemporaryDirectory(prefix="edgellm-readme-") as folder:
        furnish(Path(folder))
        for program in programs:
            check(program, Path(folder))
    print(f"README.md: {len(programs)} commands and examples run, {len(names)} names known")


def furnish(folder: Path) -> None:
    """What the README's commands find in their folder."""
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny_models import tiny_model

    tiny_model(folder / "model.gguf", "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE)
    (folder / "notes.txt").write_text("the world\n", encoding="utf-8")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "home").mkdir()


def check(program: tuple[str, ...], folder: Path) -> None:
    """Run one command or example as a new user with this environment would."""
    print(f"$ {program[-1].strip()}", flush=True)
    homes = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(folder / "home"))
    environment = os.environ | homes | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    message = "hello\n" if " chat" in program[-1] else ""
    done = subprocess.run(program, input=message, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{program[-1]}\nended with {done.returncode} and printed {done.stdout!r}\n{done.stderr}")


if __name__ == "__main__":
    main()
