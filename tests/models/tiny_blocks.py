"""Quantised rows for tiny models: encoded where the `gguf` package can, else random valid blocks of sane size."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

# Of types that `gguf` only decodes: where block scales lie (offset in bytes -> typical value of that float16), chosen
# so that decoded values have a standard deviation near 1/12 and a mean near 0.
SCALES: dict[str, dict[int, float]] = {
    "Q2_K": {80: 0.009, 82: 0.0135},
    "Q3_K": {108: 0.002},
    "Q4_K": {0: 0.0004, 2: 0.003},
    "Q5_K": {0: 0.0002, 2: 0.0031},
    "Q6_K": {208: 0.00006},
    "IQ4_NL": {0: 0.0012},
    "IQ4_XS": {0: 0.00007},
    "IQ1_S": {0: 0.013},
    "IQ2_XXS": {0: 0.002},
    "IQ2_XS": {0: 0.002},
    "IQ2_S": {0: 0.002},
    "IQ3_XXS": {0: 0.0007},
    "IQ3_S": {0: 0.0006},
}
QUARTERS = {"IQ1_M": 0.013}  # types whose float16 has a quarter in the highest bits of each of the last four words


def raw_type(array: npt.NDArray[np.float32], kind: gguf.GGMLQuantizationType, seed: int | None) -> npt.NDArray[Any]:
    """`array` (..., columns) as rows of bytes of that type; blocks of the types in SCALES and QUARTERS are random, not encoded.

    `seed`: of these blocks; None for a block of zeros in place of each, of any type.
    """
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if seed is None:
        return np.zeros((*array.shape[:-1], array.shape[-1] // block * block_bytes), np.uint8)
    if kind.name not in SCALES and kind.name not in QUARTERS:
        encoder = getattr(gguf.quants, kind.name, None)  # all rows at once, where `quantize` takes sixteen at a time
        return gguf.quants.quantize(array, kind) if encoder is None else encoder.quantize_rows(array)  # type: ignore[no-any-return]
    rng, n_blocks = np.random.default_rng(seed), array.size // block
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), np.uint8)
    spread = rng.uniform(0.7, 1.3, n_blocks)  # one per block, so that mins stay in step with scales
    for offset, typical in SCALES.get(kind.name, {}).items():
        blocks[:, offset : offset + 2] = (spread * typical).astype(np.float16)[:, None].view(np.uint8)
    if kind.name in QUARTERS:
        half = (spread * QUARTERS[kind.name]).astype(np.float16).view(np.uint16)[:, None]
        blocks[:, -7::2] = blocks[:, -7::2] & 15 | (half >> np.arange(0, 16, 4) & 15).astype(np.uint8) << 4
    return blocks.reshape(*array.shape[:-1], -1)
