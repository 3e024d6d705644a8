"""Seconds that encoding a picture takes, beside llama.cpp's mtmd: same file and threads, alternating; medians of ratios.

    .venv/bin/python scripts/bench_vision.py [SHAPE ...] --folder DIR [--peer PYTHON] [--types F16,Q8_0] [--threads 1,2]

Projector files with the shapes of public models and random weights are written into DIR once, with a tiny language model, which
mtmd asks for. PYTHON is an interpreter that has llama-cpp-python built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # values of keys

import gguf
import numpy as np
from children import ROOT, Child
from gguf import GGMLQuantizationType as Kind

from edgellm.loading.image_encoder import ImageEncoder

sys.path.insert(0, str(ROOT / "tests" / "models"))
from tiny_models import tiny_model

HALF = [0.5, 0.5, 0.5]
PEER = Path(__file__).resolve().parent / "peers" / "llama_cpp_vision.py"


@dataclass(frozen=True)
class Shape:
    """An encoder's sizes and the picture (height, width) that it is measured with."""

    projector: str
    layers: int
    n: int
    ff: int
    heads: int
    patch: int
    side: int  # pixels of the images that positions are for
    n_out: int
    picture: tuple[int, int]
    keys: dict[str, Any] = field(default_factory=dict)


SHAPES = {
    "siglip-so400m-896": Shape("gemma3", 27, 1152, 4304, 16, 14, 896, 2560, (896, 896), {"projector.scale_factor": 4}),
    "qwen3-vl-2b": Shape(
        "qwen3vl_merger", 24, 1024, 4096, 16, 16, 768, 2048, (768, 1024),
        {"spatial_merge_size": 2, "is_deepstack_layers": [layer in (5, 11, 17) for layer in range(24)]},
    ),
    "smolvlm-500m": Shape(
        "idefics3", 12, 768, 3072, 12, 16, 512, 960, (512, 512), {"projector.scale_factor": 4, "preproc_image_size": 512}
    ),
}  # fmt: skip


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a file's tensors; those of one dimension are biases and norms."""
    n, found = shape.n, dict[str, tuple[int, ...]]()

    def linear(name: str, rows: int, columns: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (rows, columns), (rows,)

    def norm(name: str, width: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (width,), (width,)

    qwen = shape.projector == "qwen3vl_merger"
    found["v.patch_embd.weight"], found["v.patch_embd.bias"] = (n, 3, shape.patch, shape.patch), (n,)
    found["v.position_embd.weight"] = ((shape.side // shape.patch) ** 2, n)
    for layer in range(shape.layers):
        block = f"v.blk.{layer}"
        norm(f"{block}.ln1", n)
        norm(f"{block}.ln2", n)
        for name in ("attn_qkv",) if qwen else ("attn_q", "attn_k", "attn_v"):
            linear(f"{block}.{name}", 3 * n if qwen else n, n)
        linear(f"{block}.attn_out", n, n)
        linear(f"{block}.ffn_up", shape.ff, n)
        linear(f"{block}.ffn_down", n, shape.ff)
    norm("v.post_ln", n)
    if qwen:
        found["v.patch_embd.weight.1"] = found["v.patch_embd.weight"]
        linear("mm.0", 4 * n, 4 * n)
        linear("mm.2", shape.n_out, 4 * n)
        for layer, deep in enumerate(shape.keys["is_deepstack_layers"]):
            if deep:
                norm(f"v.deepstack.{layer}.norm", 4 * n)
                linear(f"v.deepstack.{layer}.fc1", 4 * n, 4 * n)
                linear(f"v.deepstack.{layer}.fc2", shape.n_out, 4 * n)
    elif shape.projector == "gemma3":
        found |= {"mm.soft_emb_norm.weight": (n,), "mm.input_projection.weight": (n, shape.n_out)}
    else:
        found["mm.model.fc.weight"] = (shape.n_out, n * shape.keys["projector.scale_factor"] ** 2)
    return found


def write(path: Path, shape: Shape, kind: Kind) -> None:
    """A projector file with matrices of this type; those whose rows it can't have are F16, as llama-quantize has them."""
    writer, rng = gguf.GGUFWriter(path, "clip"), np.random.default_rng(0)
    writer.add_string("clip.projector_type", shape.projector)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    keys: dict[str, Any] = {
        "image_size": shape.side, "patch_size": shape.patch, "projection_dim": shape.n_out, "embedding_length": shape.n,
        "feed_forward_length": shape.ff, "block_count": shape.layers, "attention.head_count": shape.heads,
        "attention.layer_norm_epsilon": 1e-6, "image_mean": HALF, "image_std": HALF,
    } | shape.keys  # fmt: skip
    for key, value in keys.items():
        name = f"clip.vision.{key}"
        if isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_array(name, value)
    for name, size in tensors(shape).items():
        values = rng.standard_normal(size, np.float32) / np.float32(np.sqrt(np.prod(size[1:])) if len(size) > 1 else 10)
        if len(size) == 1:
            writer.add_tensor(name, values + np.float32("ln" in name or "norm" in name))
        elif len(size) == 2 and "position" not in name and name != "mm.input_projection.weight" and size[1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values.astype(np.float32 if "position" in name else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def picture(size: tuple[int, int], seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    y, x = np.mgrid[: size[0], : size[1]]
    waves = np.stack([np.sin(y / 37 + seed), np.cos(x / 23), np.sin((x + y) / 59)], axis=-1)
    return (127 + 100 * waves).astype(np.uint8)


def compare(name: str, kind: str, threads: int, options: argparse.Namespace) -> None:
    shape, path = SHAPES[name], options.folder / f"mmproj-{name}-{kind}.gguf"
    if not path.exists():
        write(path, shape, Kind[kind])
    encoder, peer = ImageEncoder(path, threads), None
    if options.peer:
        model = options.folder / f"{name}-model.gguf"
        if not model.exists():
            deep = sum(shape.keys.get("is_deepstack_layers", ()))
            tiny_model(
                model, "qwen3vl" if deep else "llama", "F16", n_embd=shape.n_out, tokenizer="bpe",
                metadata={"{arch}.n_deepstack_layers": deep} if deep else None,
            )  # fmt: skip
        size = [str(each) for each in shape.picture]
        peer = Child("mtmd", [options.peer, str(PEER), str(path), str(model), str(threads), *size], {})
    mine, theirs = [], []
    for turn in range(options.rounds + 1):  # the first warms caches up
        started = time.perf_counter()
        encoder.encode(picture(shape.picture, turn))
        mine.append(time.perf_counter() - started)
        if peer:
            theirs.append(peer.ask(str(turn)))
    row = [name, kind, threads, f"{statistics.median(mine[1:]):.2f}"]
    if peer:
        ratio = statistics.median(b / a for a, b in zip(mine[1:], theirs[1:], strict=True))
        row += [f"{statistics.median(theirs[1:]):.2f}", f"{ratio:.2f}"]
        peer.close()
    encoder.close()
    print("|", " | ".join(map(str, row)), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--types", default="F16,Q8_0")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="python with llama_cpp")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    head = ["encoder", "type", "threads", "edgellm s", *(["mtmd s", "× mtmd"] if options.peer else [])]
    print("|", " | ".join(head), "|\n|", " | ".join("---" for _ in head), "|")
    for name in options.shapes:
        for kind in options.types.split(","):
            for threads in options.threads.split(","):
                compare(name, kind, int(threads), options)


if __name__ == "__main__":
    main()
