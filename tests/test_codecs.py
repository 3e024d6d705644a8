"""Every codec in the folder decodes bit for bit as the `gguf` package does, and quantises within a written error."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, quants

import edgellm.formats.codecs as codecs
from edgellm.formats.codecs import CODECS, Codec
from edgellm.formats.ggml_types import TYPES_BY_NAME

FILES = sorted(path.stem for path in Path(codecs.__file__).parent.glob("[a-z]*.py"))
NAMES = sorted(CODECS)

# Relative RMS error on 256 x 1024 values of N(0, 1), seed 7: what the codec reached when it was written, plus 2 %.
# For comparison, uniform quantisation of N(0, 1) at the Lloyd-Max step has 0.34 at 2 bits, 0.19 at 3 and 0.11 at 4.
GAUSS_CEILING = {
    "F32": 0.0, "F16": 0.00022, "BF16": 0.0018, "Q8_0": 0.0055, "Q6_K": 0.0176, "Q5_K": 0.0378, "Q5_1": 0.0388,
    "Q5_0": 0.0438,
    "Q4_K": 0.0742, "Q4_1": 0.0799, "Q4_0": 0.0879, "IQ4_NL": 0.0760, "IQ4_XS": 0.0765, "MXFP4": 0.118, "Q3_K": 0.147,
    "Q2_K": 0.275,
}
# Ceilings of llama.cpp's own test of its quantisers, tests/test-quantize-fns.cpp: sqrt(sum of squares) / n on its wave.
WAVE_CEILING = {"Q2_K": 0.0075, "Q3_K": 0.0040, "MXFP4": 0.0030}
WAVE_CEILING_OTHERS = 0.002


def _same_bits(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    both_nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and bool((both_nan | (a.view(np.uint32) == b.view(np.uint32))).all())


def _decoded_by_package(raw: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        decoded: npt.NDArray[np.float32] = quants.dequantize(raw, GGMLQuantizationType[name])
        return decoded


def _gauss(rows: int = 256, columns: int = 1024) -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)


def test_each_file_is_a_codec_of_its_name() -> None:
    assert sorted(name.upper() for name in FILES) == NAMES
    assert all(codec.name == name for name, codec in CODECS.items())
    assert len(NAMES) >= 16


@pytest.mark.parametrize("name", NAMES)
def test_block_layout(name: str) -> None:
    codec, kind = CODECS[name], TYPES_BY_NAME[name]
    assert (codec.n, codec.dtype.itemsize) == (kind.block, kind.block_bytes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_decodes_any_bytes_as_the_package_does(name: str, seed: int) -> None:
    codec = CODECS[name]
    raw = np.random.default_rng(seed).integers(0, 256, (200, 3 * codec.dtype.itemsize), np.uint8)
    assert _same_bits(codec.dequantize(raw), _decoded_by_package(raw, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504.0])
def test_decodes_odd_scales_as_the_package_does(name: str, scale: float) -> None:
    codec = CODECS[name]
    blocks = np.random.default_rng(0).integers(0, 256, (64, codec.dtype.itemsize), np.uint8).view(codec.dtype)
    floats = [field for field in codec.dtype.names or () if codec.dtype[field].kind == "f"]
    for field in floats:
        blocks[field] = scale
    raw = blocks.view(np.uint8)
    assert _same_bits(codec.dequantize(raw), _decoded_by_package(raw, name))


@pytest.mark.parametrize("name", NAMES)
def test_decodes_quantised_values_as_the_package_does(name: str) -> None:
    raw = CODECS[name].quantize(_gauss(32))
    decoded = CODECS[name].dequantize(raw)
    assert np.isfinite(decoded).all() and _same_bits(decoded, _decoded_by_package(raw, name))


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_quantises_as_the_package_does(name: str) -> None:
    constant = np.ones((1, 1024), np.float32)
    values = np.concatenate([_gauss(16), _gauss(16) * np.float32(1e-6), 0 * constant, -3 * constant])
    expected = quants.quantize(values, GGMLQuantizationType[name]).view(np.uint8)
    assert np.array_equal(CODECS[name].quantize(values), expected.reshape(len(values), -1))


def test_bf16_of_special_values() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, -0.0, 3.4e38, 1e-40, 1.00390625, 1.01171875]], np.float32)
    values = np.append(values, np.array([[0x7F800001, 0xFFFFFFFF]], np.uint32).view(np.float32), axis=1)
    expected = quants.quantize(values, GGMLQuantizationType.BF16).view(np.uint8)
    assert np.array_equal(CODECS["BF16"].quantize(values), expected.reshape(1, -1))


@pytest.mark.parametrize("name", NAMES)
def test_quantisation_error_on_noise(name: str) -> None:
    x, codec = _gauss(), CODECS[name]
    error = np.sqrt(np.square(codec.dequantize(codec.quantize(x)) - x).mean() / np.square(x).mean())
    assert error <= GAUSS_CEILING[name], f"{name}: {error:.5f}"


@pytest.mark.parametrize("name", NAMES)
def test_quantisation_error_on_llama_cpps_wave(name: str) -> None:
    x, codec = (0.1 + 2 * np.cos(np.arange(32 * 128))).astype(np.float32)[None], CODECS[name]
    error = np.sqrt(np.square(codec.dequantize(codec.quantize(x)) - x).sum()) / x.size
    assert error <= WAVE_CEILING.get(name, WAVE_CEILING_OTHERS), f"{name}: {error:.5f}"


@pytest.mark.parametrize("name", NAMES)
def test_zeros_and_constants_survive(name: str) -> None:
    codec = CODECS[name]
    assert not codec.dequantize(codec.quantize(np.zeros((2, 512)))).any()
    constant = codec.dequantize(codec.quantize(np.full((1, 512), -1.0)))
    assert np.abs(constant + 1).max() < 0.08


@pytest.mark.parametrize("name", NAMES)
def test_shapes(name: str) -> None:
    codec = CODECS[name]
    x = np.random.default_rng(1).standard_normal((2, 3, 2 * codec.n))
    raw = codec.quantize(x)
    assert raw.shape == (2, 3, 2 * codec.dtype.itemsize) and raw.dtype == np.uint8
    decoded = codec.dequantize(raw)
    assert decoded.shape == x.shape and decoded.dtype == np.float32
    assert np.array_equal(codec.dequantize(raw[1, 2]), decoded[1, 2])
    assert np.array_equal(codec.dequantize(raw[:, ::2]), decoded[:, ::2])
    assert codec.dequantize(raw[:0]).shape == (0, 3, 2 * codec.n) and codec.quantize(x[:0]).shape == (0, *raw.shape[1:])
    assert codec.dequantize(raw[..., :0]).shape == (2, 3, 0)


@pytest.mark.parametrize("name", [name for name in NAMES if CODECS[name].n > 1])
def test_rows_of_no_whole_blocks_are_refused(name: str) -> None:
    codec = CODECS[name]
    with pytest.raises(ValueError, match="whole number"):
        codec.dequantize(np.zeros((2, codec.dtype.itemsize + 1), np.uint8))
    with pytest.raises(ValueError, match="whole number"):
        codec.quantize(np.zeros((2, codec.n + 1), np.float32))


def test_groups_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.formats.codecs import _codec

    raw = CODECS["Q6_K"].quantize(_gauss(8))
    whole = CODECS["Q6_K"].dequantize(raw)
    monkeypatch.setattr(_codec, "_GROUP_ELEMENTS", 256 * 3)
    assert np.array_equal(CODECS["Q6_K"].dequantize(raw), whole)
    assert np.array_equal(CODECS["Q6_K"].quantize(_gauss(8)), raw)


def test_layout_of_the_wrong_size_is_a_bug_found_at_import() -> None:
    def unused(_: Any) -> Any: ...

    with pytest.raises(AssertionError, match="17 != 18"):
        Codec("Q4_0", np.dtype([("d", "u1"), ("qs", "u1", 16)]), unused, unused)


def test_shared_models_decode_as_the_package_does(shared: Path) -> None:
    from edgellm.formats.gguf import open_gguf
    from edgellm.weights import WeightStore

    seen: set[str] = set()
    for path in sorted(shared.glob("models/stories3M*.gguf")):
        store = WeightStore(open_gguf(path))
        for name in store.names():
            weight = store[name]
            if weight.type.name not in seen:
                seen.add(weight.type.name)
                expected = _decoded_by_package(weight.data, weight.type.name)
                assert _same_bits(weight.array().reshape(expected.shape), expected)
        del weight
        store.close()
    assert len(seen) >= 10
