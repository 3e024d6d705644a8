"""Feeds damaged model files, folders and settings to everything that reads them: each must be used or end in an EdgeError.

    .venv/bin/python scripts/fuzz.py [--target gguf|folder|catalogue|settings] [--seed 1] [--count 1000] [--seconds 60]

Without a target all of them take turns. Ends with 1 where anything else was raised; prints the seed and case to see it again with.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.extend(str(Path(__file__).resolve().parent.parent / folder) for folder in ("scripts", "tests/helpers", "tests/models"))

from fuzz_inputs import BASE, CATALOGUE, KINDS, SCALINGS, TOML_VALUES, injured, safetensors, tensors_of, tokenizer_json, written
from gguf_cases import ARRAY, BOOL, F32, F64, I8, I32, STRING, U8, U32, U64, mutate
from rewriting import parts
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.catalogue import ledger, registry, removing
from edgellm.catalogue.names import resolve
from edgellm.chat import find_template, template_variants
from edgellm.checkpoints.opening import open_model
from edgellm.errors import EdgeError
from edgellm.passes import optimise
from edgellm.sampling import model_defaults
from edgellm.tokenizer import build_tokenizer


def use(path: Path) -> None:
    """Everything that a model file decides, short of computing."""
    with open_model(path) as model:
        model.raw(next(iter(model.tensors))) if model.tensors else None
        metadata = model.metadata
        template_variants(metadata, file=model.path)
        model_defaults(metadata, model.path)
        optimise(load_graph(model, 64)[1])
        tokenizer = build_tokenizer(metadata, file=model.path)
        text = tokenizer.decode(tokenizer.encode("the <s> cat\n1234", parse_special=True))
        tokenizer.may_form_control(text)
        find_template(metadata, tokenizer, file=model.path).render([{"role": "user", "content": "Hi"}])


def rewritten(path: Path, source: random.Random) -> bytes:
    """The file with one to three keys or tensors changed, and laid out by the rules."""
    whole = parts(path)
    keys, tensors = whole.keys, whole.tensors
    for _ in range(source.randint(1, 3)):
        if source.random() < 0.7:
            at = source.randrange(len(keys))
            name = keys[at][0]
            keys[at : at + 1] = source.choice(
                (
                    [],
                    [(name, source.choice((U8, I8, U32, I32, U64, F32, F64, BOOL)), source.choice(NUMBERS))],
                    [(name, keys[at][1], source.choice(NUMBERS))],
                    [(name, STRING, source.choice(TEXTS))],
                    [(name, ARRAY, source.choice(ARRAYS))],
                    [(name, ARRAY, source.choice(ARRAYS))],
                )
            )
        else:
            at = source.randrange(len(tensors))
            tensor = tensors[at]
            dims = tuple(source.choice((0, 1, 2, 31, 32, 33, 64, 96, length)) for length in tensor.dims)
            tensors[at : at + 1] = source.choice(
                (
                    [],
                    [replace(tensor, dims=dims)],
                    [replace(tensor, dims=(*tensor.dims, 1, 1)[:4])],
                    [replace(tensor, type=source.choice((0, 1, 2, 8, 12, 24, 30)))],
                    [replace(tensor, dims=tensor.dims[:1])],
                    [replace(tensor, name="x" + str(tensor.name))],
                )
            )
    return whole.file()


NUMBERS = (
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    64,
    96,
    128,
    127,
    255,
    2**31 - 1,
    2**31,
    2**32 - 1,
    -1,
    -2,
    0.0,
    1e-30,
    0.5,
    1e6,
    1e30,
    math.inf,
    math.nan,
)


TEXTS = (
    "",
    " ",
    "llama",
    "gpt2",
    "gemma3",
    "none",
    "default",
    "yarn",
    "linear",
    "longrope",
    "\0",
    "\x1b[2J",
    "x" * 70_000,
    "{{ 1 / 0 }}",
    "{% for %}",
    "{{ 'x' * 10 ** 9 }}",
)


ARRAYS: tuple[Any, ...] = (
    [],
    ["a"],
    ["a b", "c d"],
    ["th", "e"] * 48,
    ["x" * (1 << 20)],
    np.zeros(0, np.int32),
    np.zeros(96, np.int8),
    np.ones(96, np.int32),
    np.zeros(96, np.float32),
    np.full(96, np.nan, np.float32),
    np.full(96, np.inf, np.float32),
    np.ones(1, np.uint32),
    np.array([2**32 - 1, 0], np.uint32),
    np.ones(2, bool),
    np.array([1e308], np.float64),
)


class Fuzzer:
    """Makes damaged things in `folder` and has them read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ.update(
            {
                name: str(folder / name.lower())
                for name in (
                    "HOME",
                    "EDGELLM_CONFIG",
                    "EDGELLM_DATA",
                    "HF_HUB_CACHE",
                    "XDG_CACHE_HOME",
                    "XDG_STATE_HOME",
                    "OLLAMA_MODELS",
                )
            }
        )
        self.models = [
            tiny_model(folder / f"{arch}.gguf", arch, "Q8_0", tokenizer=kind, n_layers=1, template="{{ messages[0].content }}")
            for arch, kind in (("llama", "spm"), ("gpt2", "bpe"), ("gemma3", "spm"), ("phi3", "bpe"), ("qwen3", None))
        ]
        self.files = [path.read_bytes() for path in self.models]

    def gguf(self, source: random.Random) -> None:
        """Injuries to the bytes of a small model's header, or a sound header with wrong values."""
        if source.random() < 0.6:
            path = self.folder / "rewritten.gguf"
            path.write_bytes(rewritten(source.choice(self.models), source))
            use(path)
            return
        data = source.choice(self.files)
        end = min(len(data), source.choice((200, 1500, 12_000)))
        path = self.folder / "injured.gguf"
        path.write_bytes(mutate(data[:end], source) + data[end:])
        use(path)

    def mlx_folder(self, source: random.Random) -> None:
        """Injuries to one of a folder's JSON files."""
        path = self.folder / "model"
        path.mkdir(exist_ok=True)
        kind = source.choice(KINDS)
        config = {**BASE, "model_type": kind, "rope_scaling": {**BASE["rope_scaling"], "rope_type": source.choice(SCALINGS)}}  # type: ignore[dict-item]
        whole = tokenizer_json()
        whole["model"]["byte_fallback"] = source.random() < 0.5
        beside = {
            "bos_token": "<s>",
            "unk_token": "<unk>",
            "eos_token": {"content": "</s>"},
            "add_bos_token": True,
            "chat_template": "{{ messages[0].role }}",
        }
        hurt = source.randrange(4)
        for place, name, value in ((0, "config.json", config), (1, "tokenizer.json", whole), (2, "tokenizer_config.json", beside)):
            text = written(injured(value, source) if place == hurt else value)
            (path / name).write_bytes(mutate(text, source) if place == hurt and source.random() < 0.2 else text)
        (path / "model.safetensors").write_bytes(safetensors(tensors_of(kind), source, hurt == 3))
        use(path)

    def catalogue(self, source: random.Random) -> None:
        """Injuries to the user's models.toml."""
        lines = CATALOGUE.splitlines()
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(lines))
            key, equals, _ = lines[at].partition(" = ")
            lines[at] = source.choice(
                (f"{key}{equals}{source.choice(TOML_VALUES)}", "", lines[at] * 2, source.choice(CATALOGUE.splitlines()))
            )
        text = "\n".join(lines).encode()
        path = self.folder / "edgellm_config" / "models.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(mutate(text, source) if source.random() < 0.2 else text)
        registry._read.cache_clear()
        registry.folders()
        for name in ("mine", "mine:Q4_0", "other", "hf:o/r"):
            with contextlib.suppress(EdgeError):
                resolve(name)
        for entry in registry.entries().values():
            entry.share_read, [file.size for file in entry.files]  # what lists and fits read of it

    def settings(self, source: random.Random) -> None:
        """Injuries to the files that edgellm writes for itself."""
        path = self.folder / "edgellm_data" / ledger.FILE
        path.parent.mkdir(exist_ok=True)
        whole = ["/nonexistent/a.gguf", "/nonexistent/b.gguf"]
        text = written(injured(whole, source))
        path.write_bytes(mutate(text, source) if source.random() < 0.5 else text)
        ledger.owned()
        with contextlib.suppress(EdgeError):
            removing.find_removable("a")

    def targets(self) -> dict[str, Callable[[random.Random], None]]:
        return {"gguf": self.gguf, "folder": self.mlx_folder, "catalogue": self.catalogue, "settings": self.settings}


def run(targets: list[str], seed: int, count: int, seconds: float = float("inf")) -> tuple[int, int, list[str]]:
    """Cases, refusals, and one text for each case that ended in anything else."""
    done = refused = 0
    faults: list[str] = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fuzzer = Fuzzer(Path(folder))
        for case in range(count):
            for target in targets:
                if time.monotonic() > end:
                    return done, refused, faults
                done += 1
                try:
                    fuzzer.targets()[target](random.Random(f"{seed} {case} {target}"))
                except EdgeError as error:
                    refused += 1
                    if not _is_short(str(error)):
                        faults.append(
                            f"{target} --seed {seed} case {case}: its message is {len(str(error))} characters: {str(error)[:300]!r}"
                        )
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    where = "".join(traceback.format_exception(error)[-6:])[-1500:]
                    faults.append(f"{target} --seed {seed} case {case}: {error!r:.300}\n{where}")
    return done, refused, faults


def _is_short(text: str) -> bool:
    return len(text) < 1500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("gguf", "folder", "catalogue", "settings"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args()
    targets = [asked.target] if asked.target else ["gguf", "folder", "catalogue", "settings"]
    done, refused, faults = run(targets, asked.seed, asked.count, asked.seconds)
    for fault in faults[:20]:
        print(fault)
    print(f"seed {asked.seed}: {done} cases, {refused} refused, {done - refused - len(faults)} used, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
