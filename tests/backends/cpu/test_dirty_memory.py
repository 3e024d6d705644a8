"""Working memory and buffers that hold anything before a step give the same bits: nothing is read that was not written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.backends.cpu import buffers, plan
from edgellm.tools.quantize import QuantizeOptions, quantize

LENGTHS = (1, 3, 15, 16, 17, 40, 97)
MIXES = {  # rows shorter than a superblock, and types of several record lengths
    "llama-Q6_K": ("llama", {"n_embd": 128, "n_ff": 256}, "Q6_K"),
    "llama-Q4_K_S": ("llama", {"n_embd": 96, "n_ff": 160}, "Q4_K_S"),
    "qwen3moe-Q4_K_M": ("qwen3moe", {"n_embd": 256, "n_ff": 128}, "Q4_K_M"),
    "lfm2-Q5_K_M": ("lfm2", {"n_embd": 128}, "Q5_K_M"),
    "deepseek2-Q6_K": ("deepseek2", {"n_embd": 256, "n_ff": 512}, "Q6_K"),
    "mamba-Q6_K": ("mamba", {"n_embd": 128}, "Q6_K"),
    "qwen35-Q3_K_M": ("qwen35", {"n_embd": 256}, "Q3_K_M"),
    "llama-F16": ("llama", {"n_embd": 96}, "F16"),
}


@pytest.mark.parametrize("name", MIXES)
def test_logits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arch, sizes, mix = MIXES[name]
    path = tmp_path / "m.gguf"
    quantize(tiny_model(tmp_path / "source.gguf", arch, n_vocab=131, **sizes), path, QuantizeOptions(type=mix))
    ids = np.random.default_rng(0).integers(0, 131, max(LENGTHS))

    def logits(fill: int) -> list[npt.NDArray[np.float32]]:
        def aligned(nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
            block = np.full(nbytes + buffers.ALIGNMENT, fill, np.uint8)
            return block, -(-block.ctypes.data // buffers.ALIGNMENT) * buffers.ALIGNMENT

        for module in (buffers, plan):
            monkeypatch.setattr(module, "aligned", aligned)
        with edgellm.load(path, threads=2, context=128) as model:
            return [model.logits(ids[:n]) for n in LENGTHS]

    clean = logits(0)
    for fill in (0xFF, 0x7F):  # NaN in every float; large ones
        for n, expected, found in zip(LENGTHS, clean, logits(fill), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=f"{n} tokens")
