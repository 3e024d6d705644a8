"""Feeds damaged model files, folders and settings to everything that reads them: each must be used or end in an EdgeError.

    .venv/bin/python scripts/fuzz.py [--target gguf|folder|catalogue|settings] [--seed 1] [--count 1000] [--seconds 60]

Without a target all of them take turns. Ends with 1 where anything else was raised; prints the seed and case to see it again with.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import random
import struct
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

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models"))

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

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    10**400,
    0.5,
    -0.5,
    1e308,
    -1e308,
    1e-320,
    "",
    "\0",
    " ",
    "\ud800",
    "\u202e",
    "x" * 100_000,
    "1",
    "nan",
    "../../x",
    "<0x00>",
    "{{ 1 / 0 }}",
    "{% for %}",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    ["a", None],
    [["th", None]],
    [1, "x"],
    [1e308] * 8,
    list(range(96)),
)
SPLIT = ("q_proj", "k_proj", "v_proj", "mlp.gate_proj", "mlp.up_proj")  # what phi3 keeps together
DEEP = "lists in lists"
BASE = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 2,
    "n_inner": 96,
    "n_head": 4,
    "n_positions": 128,
    "layer_norm_epsilon": 1e-5,
    "partial_rotary_factor": 1.0,
    "sliding_window": 8,
    "sliding_window_pattern": 6,
    "rope_local_base_freq": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": [2],
    "tie_word_embeddings": False,
    "quantization": {"group_size": 32, "bits": 4},
    "text_config": {},
    "layer_types": ["full_attention", "sliding_attention"],
    "original_max_position_embeddings": 64,
    "attn_logit_softcapping": 30.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "type": "llama3",
        "original_max_position_embeddings": 64,
        "long_factor": [1.0] * 8,
        "short_factor": [1.0] * 8,
    },
}
KINDS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gpt2", "gemma3", "gemma3_text")
SCALINGS = ("default", "llama3", "linear", "yarn", "longrope", "su")
CATALOGUE = (
    '''schema = 1
folders = ["/nonexistent"]
[[model]]
name = "mine"
repository = "o/r"
architecture = "llama"
parameters = "1B"
active = "0.5B"
context = 4096
kind = "chat"
tags = ["a"]
licence = "mit"
memory_gb = 1.5
default = "Q8_0"
sampling = { temperature = 0.5, top_k = 3 }
[[model.file]]
type = "Q8_0"
path = "m.gguf"
size = 4
sha256 = "'''
    + "a" * 64
    + """"
[[model.file]]
type = "Q4_0"
parts = [{ path = "p-00001-of-00002.gguf", size = 1 }, { path = "p-00002-of-00002.gguf", size = 1 }]
"""
)
TOML_VALUES = (
    "1",
    "-1",
    "true",
    '""',
    '"\\u0000"',
    '"\\u001b[2J"',
    "[]",
    "{}",
    "[[]]",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "9" * 30,
    "1979-05-27",
    "[1]",
    '["\\u0000"]',
    '["~nobody/x"]',
    "[{}]",
    "{ a = 1 }",
    "[" * 20_000,
    "{a=" * 5000,
    '"' + "x" * 9999 + '"',
    "1" + "_0" * 3000,
    '"../x.gguf"',
    "0x" + "f" * 9000,
)


def injured(value: Any, source: random.Random) -> Any:
    """A JSON value with one to three wrong places: replaced, dropped, repeated, or taken from elsewhere."""
    value = copy.deepcopy(value)
    for _ in range(source.randint(1, 3)):
        places = list(_places(value))
        holder, key = source.choice(places)
        kind = source.random()
        if kind < 0.7:
            holder[key] = copy.deepcopy(source.choice(NASTY))
        elif kind < 0.85:
            other, name = source.choice(places)
            with contextlib.suppress(KeyError, IndexError, TypeError):
                holder[key] = copy.deepcopy(other[name])
        elif kind < 0.95:
            del holder[key]
        else:
            holder[key] = DEEP
    return value


def written(value: Any) -> bytes:
    """A value as JSON; DEEP becomes lists in lists that Python could not write itself."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).encode()


def _places(value: Any) -> Any:
    """Every (container, key) of a value: a few of long lists, and not into what an injury nested deeply."""
    waiting, found = [value], []
    while waiting and len(found) < 500:
        holder = waiting.pop()
        for place in list(holder) if isinstance(holder, dict) else list(range(len(holder)))[:40]:
            found.append((holder, place))
            if isinstance(holder[place], dict | list) and holder[place]:
                waiting.append(holder[place])
    return found or [({"": 0}, "")]


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


def safetensors(tensors: dict[str, tuple[int, ...]], source: random.Random, header: Any = None) -> bytes:
    """A file of zeros in F16."""
    entries, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for length in shape:
            size *= length
        entries[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = written(injured(entries, source) if header else entries)
    return struct.pack("<Q", len(text)) + text + bytes(at)


def tensors_of(kind: str) -> dict[str, tuple[int, ...]]:
    shapes = {"model.embed_tokens.weight": (96, 64), "model.norm.weight": (64,), "lm_head.weight": (96, 64)}
    layer = {
        "input_layernorm": (64,),
        "post_attention_layernorm": (64,),
        "self_attn.q_proj": (64, 64),
        "self_attn.k_proj": (32, 64),
        "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64),
        "mlp.gate_proj": (96, 64),
        "mlp.up_proj": (96, 64),
        "mlp.down_proj": (64, 96),
    }
    if kind == "phi3":
        layer |= {"self_attn.qkv_proj": (128, 64), "mlp.gate_up_proj": (192, 64)}
        layer = {name: shape for name, shape in layer.items() if not name.endswith(SPLIT) or "qkv" in name}
    if kind.startswith("gemma"):
        layer |= {"pre_feedforward_layernorm": (64,), "post_feedforward_layernorm": (64,)}
    if kind == "qwen3" or kind.startswith("gemma"):
        layer |= {"self_attn.q_norm": (16,), "self_attn.k_norm": (16,)}
    for index in range(2):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def tokenizer_json() -> dict[str, Any]:
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{i:02X}>" for i in range(20)),
        *"abcdefghijklmnopqrstuvwxyz \u0120\u2581",
        "th",
        "the",
        "he",
    ]
    return {
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": ["t h", ["th", "e"]],
            "byte_fallback": False,
        },
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
        "normalizer": {"type": "Prepend"},
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"},
    }


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
