"""`edgellm quantize` against llama-quantize: speed in alternating runs with as many threads, types, sizes and decoded values.

    .venv/bin/python scripts/bench_quantize.py MODEL.gguf ... --peer PYTHON [--types Q4_0,Q4_K_M] [--threads 2] [--rounds 5]
    .venv/bin/python scripts/bench_quantize.py --make 256 OUT.gguf         (an F16 file of 256 MiB to measure with)

PYTHON is an interpreter that has llama-cpp-python. Times are those of the whole call, files written and synced included, without
the start of Python; kernels are compiled before the first round. A file with equal types and values has the same KL divergence.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.mixes import find_mix
from edgellm.tools.quantize import QuantizeOptions, quantize

PEER = Path(__file__).resolve().parent / "peers" / "llama_cpp_quantize.py"
WIDTH, CHUNK = 2048, 1 << 16  # of a made model; blocks decoded at a time


def make(mebibytes: int, out: str) -> None:
    """A llama of random F16 matrices."""
    layers = max(mebibytes // (4 * 2 * WIDTH * WIDTH >> 20), 1)
    names = ("attn_q", "attn_k", "attn_v", "attn_output")
    tensors = [
        NewTensor("token_embd.weight", (512, WIDTH), TYPES_BY_NAME["F16"]),
        *(
            NewTensor(f"blk.{layer}.{name}.weight", (WIDTH, WIDTH), TYPES_BY_NAME["F16"])
            for layer in range(layers)
            for name in names
        ),
    ]
    keys = {
        "block_count": layers,
        "context_length": 64,
        "embedding_length": WIDTH,
        "feed_forward_length": WIDTH,
        "vocab_size": 512,
        "attention.head_count": 16,
        "attention.head_count_kv": 16,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata = {"general.architecture": "llama", "tokenizer.ggml.model": "no_vocab", **{f"llama.{k}": v for k, v in keys.items()}}
    random = np.random.default_rng(0)
    with GGUFWriter(out, metadata, tensors) as writer:
        for tensor in tensors:
            writer.write(tensor.name, (random.standard_normal(tensor.shape, np.float32) * np.float32(0.02)).astype(np.float16))


def same(ours: GGUFFile, theirs: GGUFFile) -> str:
    """ "equal", or the first tensors that differ and in what."""
    different = []
    for name, info in ours.tensors.items():
        other = theirs.tensors[name]
        if info.type is not other.type:
            different.append(f"{name}: {info.type.name} and {other.type.name}")
        elif not np.array_equal(ours.raw(name), theirs.raw(name)) and not _same_values(ours, theirs, name):
            different.append(f"{name}: values")
    return "; ".join(different[:3]) or "equal"


def _same_values(ours: GGUFFile, theirs: GGUFFile, name: str) -> bool:
    """Blocks whose scale is zero may have any quants."""
    kind = ours.tensors[name].type
    a, b = (file.raw(name).reshape(-1, kind.block_bytes) for file in (ours, theirs))
    decode = CODECS[kind.name].dequantize
    return all(np.array_equal(decode(a[k : k + CHUNK]), decode(b[k : k + CHUNK])) for k in range(0, len(a), CHUNK))


def compare(model: str, name: str, options: argparse.Namespace, folder: Path) -> str:
    mix, ours, theirs = find_mix(name), folder / "ours.gguf", folder / "theirs.gguf"
    wanted = QuantizeOptions(type=name, threads=options.threads, force=True)
    quantize(model, ours, wanted)  # compiles the kernels
    times: list[tuple[float, float]] = []
    for _ in range(options.rounds):
        command = [options.peer, str(PEER), model, str(theirs), str(mix.file_type), str(options.threads)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        times.append((quantize(model, ours, wanted).seconds, float(answer.split()[-1])))
    with open_gguf(ours) as a, open_gguf(theirs) as b:
        ratio = statistics.median(peer / own for own, peer in times)
        own, peer = (statistics.median(column) for column in zip(*times, strict=True))
        return (
            f"| {Path(model).name} | {mix.name} | {own:.2f} | {peer:.2f} | {ratio:.1f} | {a.nbytes / b.nbytes:.4f} | {same(a, b)} |"
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--types", default="Q4_0,Q4_K_M,Q6_K,Q8_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--make", type=int, metavar="MIB")
    options = parser.parse_args(arguments)
    if options.make:
        make(options.make, options.models[0])
        return
    print("| model | type | ours (s) | llama.cpp (s) | times as fast | size to size | types and values |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            for name in options.types.split(","):
                print(compare(model, name, options, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
