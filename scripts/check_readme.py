"""Keeps README.md and docs/ true: runs their console commands and Python examples on a tiny model, and looks up names and links.

A ```console block is run line by line where a line starts with "$ "; each must succeed and print something. A ```python
block is run as a program; a ```py block, which needs a window, must be Python. `model.gguf`, `notes.txt`, `stories.txt`,
`checkpoint` and `adapter` are there for them; chats get one message. In all blocks, names of models after `edgellm chat` and its
kin must be in the catalogue. Links to files of the repository must lead to one.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"edgellm (?:chat|run|serve|show|tokenize|bench|pull|fit) ([a-z0-9][\w.:-]*)(?![\w./:-])")
SECONDS = 900  # the first of them compiles kernels
LEAST = 20  # commands and examples in all pages together


def main() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    with tempfile.TemporaryDirectory(prefix="edgellm-readme-") as folder:
        furnish(Path(folder))
        run = sum(check_page(page, Path(folder)) for page in pages)
    if run < LEAST:
        raise SystemExit(f"the pages have only {run} commands and examples to run: is a block marked wrongly?")
    print(f"{len(pages)} pages: {run} commands and examples run")


def check_page(page: Path, folder: Path) -> int:
    """Check one page; returns how many commands and examples were run."""
    from edgellm.catalogue import entry_of

    text = page.read_text(encoding="utf-8")
    if broken := [link for link in LINK.findall(text) if not (page.parent / link).exists()]:
        raise SystemExit(f"{page.name} links to files that are not there: {', '.join(broken)}")
    blocks = BLOCK.findall(text)
    names = {name for _, block in blocks for name in NAME.findall(block) if not re.match("hf:|ollama:", name)}
    if unknown := [name for name in names if not name.endswith(".gguf") and entry_of(name) is None]:
        raise SystemExit(f"{page.name} names models that are not in models.toml: {', '.join(unknown)}")
    lines = [line for kind, block in blocks if kind == "console" for line in block.splitlines()]
    programs = [("sh", "-c", line[2:]) for line in lines if line.startswith("$ ")]
    programs += [(sys.executable, "-c", block) for kind, block in blocks if kind == "python"]
    for kind, block in blocks:
        if kind == "py":
            ast.parse(block, page.name)
    for program in programs:
        check(program, folder)
    return len(programs)


def furnish(folder: Path) -> None:
    """What the pages' commands find in their folder."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("helpers", "models")]
    from hf_checkpoints import write_adapter, write_checkpoint
    from story_text import story_text
    from tiny_models import tiny_model

    greedy = {"general.sampling.temp": 0.0}  # by default: answers that are drawn may be empty
    tiny_model(folder / "model.gguf", "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE, metadata=greedy)
    tiny_model(folder / "model-F16.gguf", "llama", "F16", tokenizer="bpe")
    (folder / "calibration.txt").write_text("the world and the river and the sea\n" * 60, encoding="utf-8")
    (folder / "notes.txt").write_text("the world\n", encoding="utf-8")
    (folder / "stories.txt").write_text(story_text(12), encoding="utf-8")
    write_checkpoint(folder / "checkpoint", "llama")
    write_adapter(folder / "adapter", "llama")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "home").mkdir()


def check(program: tuple[str, ...], folder: Path) -> None:
    """Run one command or example as a new user with this environment would."""
    print(f"$ {program[-1].strip()}", flush=True)
    homes = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(folder / "home"))
    environment = os.environ | homes | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    message = "hello\n" if " chat" in program[-1] else ""
    done = subprocess.run(
        program, input=message, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{program[-1]}\nended with {done.returncode} and printed {done.stdout!r}\n{done.stderr}")


if __name__ == "__main__":
    main()
