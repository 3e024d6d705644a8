"""Keeps README.md and docs/ true: runs their console commands and Python examples on a tiny model, and looks up names and links.

A ```console block is run line by line where a line starts with "$ "; each must succeed and print something. A ```python
block is run as a program; so is a ```py block, a part of one, after `BEFORE`, and it need not print. "```py not run: REASON" must
be Python. Tiny stand-ins of the files that they name are there; chats get one message. In all blocks, names of models after
`edgellm chat` and its kin must be in the catalogue. Links to files of the repository must lead to one.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from edgellm import folders

ROOT = Path(__file__).resolve().parent.parent
BEFORE = """
import edgellm

model = edgellm.load("tools.gguf")
messages = [{"role": "user", "content": "Name three rivers."}]
session = model.session()
session.chat(messages, max_tokens=3)


def look_up(city, days):
    return "rain"
"""
TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>{% endif %}"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
BLOCK = re.compile(r"^```(\w+)((?: not run: .+)?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
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
    from edgellm.catalogue.names import entry_of

    text = page.read_text(encoding="utf-8")
    if broken := [link for link in LINK.findall(text) if not (page.parent / link).exists()]:
        raise SystemExit(f"{page.name} links to files that are not there: {', '.join(broken)}")
    blocks = BLOCK.findall(text)
    names = {name for *_, block in blocks for name in NAME.findall(block) if not re.match("hf:|ollama:", name)}
    if unknown := [name for name in names if not name.endswith(".gguf") and entry_of(name) is None]:
        raise SystemExit(f"{page.name} names models that are not in models.toml: {', '.join(unknown)}")
    lines = [line for kind, _, block in blocks if kind == "console" for line in block.splitlines()]
    programs = [("sh", "-c", line[2:]) for line in lines if line.startswith("$ ")]
    programs += [(sys.executable, "-c", block) for kind, _, block in blocks if kind == "python"]
    for program in programs:
        check(program, folder)
    parts = [(block, not_run) for kind, not_run, block in blocks if kind == "py"]
    for block, not_run in parts:
        ast.parse(block, page.name)
        if not not_run:
            check((sys.executable, "-c", BEFORE + block), folder, silent=True)
    return len(programs) + sum(not not_run for _, not_run in parts)


def furnish(folder: Path) -> None:
    """Prepare the folder in which the pages' commands run."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("helpers", "models")]
    import soundfile
    from hf_checkpoints import write_adapter, write_checkpoint
    from PIL import Image
    from story_text import story_text
    from tiny_hearing import clip, hearing_file
    from tiny_models import tiny_model
    from tiny_projectors import OUT, encoded, projector_file

    greedy = {"general.sampling.temp": 0.0}  # by default: answers that are drawn may be empty
    gaps = {f"tokenizer.ggml.fim_{name}_token_id": k for k, name in ((4, "pre"), (5, "suf"), (6, "mid"), (7, "sep"))}
    tiny_model(folder / "coder.gguf", "llama", "Q8_0", tokenizer="bpe", metadata=gaps)
    tiny_model(folder / "nomic-embed-text-v1.5", "nomic-bert", "F32", tokenizer="bpe")
    tiny_model(folder / "tools.gguf", "llama", "Q8_0", tokenizer="bpe", template=TOOLS + TEMPLATE, metadata=greedy)
    seeing = folder / "SmolVLM-500M-Instruct-Q8_0.gguf"
    tiny_model(seeing, "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE, metadata=greedy, context=1024)
    projector_file(folder / "mmproj-SmolVLM-500M-Instruct-Q8_0.gguf", "idefics3")
    (folder / "cat.jpg").write_bytes(encoded(Image.new("RGB", (80, 60), (200, 120, 40)), "JPEG"))
    hearing = folder / "Qwen2-Audio-7B-Instruct-Q4_K_M.gguf"
    tiny_model(hearing, "llama", "F32", n_embd=OUT, tokenizer="bpe", template=TEMPLATE, metadata=greedy, context=1024)
    hearing_file(folder / "mmproj-Qwen2-Audio-7B-Instruct-Q4_K_M.gguf", "qwen2a")
    soundfile.write(folder / "question.wav", clip(1), 16000)
    tiny_model(folder / "model.gguf", "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE, metadata=greedy)
    for name in ("pirate.gguf", "brief.gguf"):
        write_gguf_adapter(folder / name, folder / "model.gguf")
    tiny_model(folder / "model-F16.gguf", "llama", "F16", tokenizer="bpe")
    (folder / "calibration.txt").write_text("the world and the river and the sea\n" * 60, encoding="utf-8")
    (folder / "notes.txt").write_text("the world\n", encoding="utf-8")
    (folder / "stories.txt").write_text(story_text(12), encoding="utf-8")
    write_checkpoint(folder / "checkpoint", "llama")
    write_adapter(folder / "adapter", "llama")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "home").mkdir()


def write_gguf_adapter(path: Path, base: Path) -> None:
    """A LoRA adapter for the first matrix of queries of a model."""
    import numpy as np

    from edgellm.formats.ggml_types import TYPES_BY_NAME
    from edgellm.formats.gguf import open_gguf
    from edgellm.formats.writer import GGUFWriter, NewTensor

    name, rng = "blk.0.attn_q.weight", np.random.default_rng(0)
    with open_gguf(base) as gguf:
        rows, columns = gguf.tensors[name].shape
    factors = {f"{name}.lora_a": rng.standard_normal((4, columns)), f"{name}.lora_b": rng.standard_normal((rows, 4))}
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 8.0}
    with GGUFWriter(path, keys, [NewTensor(key, array.shape, TYPES_BY_NAME["F32"]) for key, array in factors.items()]) as writer:
        for key, array in factors.items():
            writer.write(key, array.astype(np.float32).view(np.uint8).reshape(-1))


def check(program: tuple[str, ...], folder: Path, *, silent: bool = False) -> None:
    """Run one command or example as a new user with this environment would. `silent`: it need not print."""
    print(f"$ {program[-1].removeprefix(BEFORE).strip()}", flush=True)
    homes = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(folder / "home"))
    homes["EDGELLM_CACHE"] = str(folders.user_cache())  # compiled kernels serve all commands, and the tests
    environment = os.environ | homes | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    message = "hello\n" if " chat" in program[-1] else ""
    done = subprocess.run(
        program, input=message, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode or not (silent or done.stdout.strip()):
        raise SystemExit(f"{program[-1]}\nended with {done.returncode} and printed {done.stdout!r}\n{done.stderr}")


if __name__ == "__main__":
    main()
