"""Every codec in the folder decodes bit for bit as the `gguf` package does, and quantises within a written error."""

from __future__ import annotations

import hashlib
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
# K and IQ4 types weigh large values more, as llama.cpp does, so that their plain error is not the least that these blocks reach.
# For comparison, uniform quantisation of N(0, 1) at the Lloyd-Max step has 0.34 at 2 bits, 0.19 at 3 and 0.11 at 4.
GAUSS_CEILING = {
    "F32": 0.0,
    "F16": 0.00022,
    "BF16": 0.0018,
    "Q8_0": 0.0055,
    "Q6_K": 0.0181,
    "Q5_K": 0.0378,
    "Q5_1": 0.0388,
    "Q5_0": 0.0438,
    "Q4_K": 0.0742,
    "Q4_1": 0.0799,
    "Q4_0": 0.0879,
    "IQ4_NL": 0.0776,
    "IQ4_XS": 0.0782,
    "MXFP4": 0.118,
    "Q3_K": 0.154,
    "Q2_K": 0.302,
    "NVFP4": 0.0971,
    "IQ3_S": 0.134,
    "IQ3_XXS": 0.183,
    "IQ2_S": 0.244,
    "IQ2_XS": 0.292,
    "IQ2_XXS": 0.335,
    "IQ1_M": 0.424,
    "IQ1_S": 0.458,
    "Q1_0": 0.613,
    "Q2_0": 0.739,
    "TQ1_0": 0.826,
    "TQ2_0": 0.826,
}
# Types whose quantiser searches grids: as many rows of noise as take a second.
GAUSS_ROWS = {"IQ1_S": 16, "IQ1_M": 16, "IQ2_XXS": 64, "IQ2_XS": 64, "IQ2_S": 64, "IQ3_XXS": 64, "IQ3_S": 64}
# Ceilings of llama.cpp's own test of its quantisers, tests/test-quantize-fns.cpp: sqrt(sum of squares) / n on its wave.
WAVE_CEILING = {
    "Q2_K": 0.0075,
    "Q3_K": 0.0040,
    "MXFP4": 0.0030,
    "NVFP4": 0.0030,
    "IQ3_S": 0.0040,
    "IQ3_XXS": 0.0050,
    "IQ2_S": 0.0075,
    "TQ1_0": 0.0100,
    "TQ2_0": 0.0100,
    "IQ2_XS": 0.0075,
    "IQ2_XXS": 0.0075,
    "IQ1_M": 0.0100,
    "IQ1_S": 0.0100,
    "Q1_0": 0.0100,
    "Q2_0": 0.0100,  # ours: it tests none
}
WAVE_CEILING_OTHERS = 0.002


# What `ggml_quantize_chunk` of llama.cpp (ggml 0.25.3, x86-64) makes of `_patterned()`, without and with importance: the first
# half of the sha256 of the decoded values.
LLAMA_CPP = {
    "Q8_0": ("6cd2f10a0df5628c", "6cd2f10a0df5628c"),
    "Q4_0": ("66364642ef8882a2", "95b388d3110ee856"),
    "Q4_1": ("a5c6f1a440104eac", "6e267d1c068e161b"),
    "Q5_0": ("47694ca4b3378bda", "37a78e168f1f7407"),
    "Q5_1": ("e7c2116e048bc834", "e6ca6a16d2fcbcf5"),
    "Q2_K": ("0b87776315d2cc1a", "9c39489df21d74e3"),
    "Q3_K": ("f319015bc048eac7", "38938922220c94b2"),
    "Q4_K": ("65b6fa815e3a0cd8", "436b7d8d97a8fae7"),
    "Q5_K": ("692db3cf33fe14d9", "81cf859d07e742be"),
    "Q6_K": ("1505e4e7cea8c3d2", "ba9afe7ea0ab1833"),
    "IQ4_NL": ("18e3e0de8373dba3", "d203eb2f708daa36"),
    "IQ4_XS": ("2142a17ac74ea00e", "afdee5694bf80028"),
    "MXFP4": ("27c78d05c59a99f7", "27c78d05c59a99f7"),
}


def _patterned() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """48 rows of 1024 values from integer arithmetic, odd rows among them, and an importance of each column."""
    i = np.arange(48 * 1024, dtype=np.uint64)
    u, v = (
        ((i * np.uint64(factor) + np.uint64(start)) % np.uint64(1 << 32)).astype(np.float64) / 2**31 - 1
        for factor, start in ((2654435761, 12345), (2246822519, 777))
    )
    x = (u * u * u * 0.06 + v * 0.02).astype(np.float32).reshape(48, 1024)
    x[1, :300], x[2], x[3], x[4], x[5], x[6] = 0, 0, 0.25, -0.5, np.abs(x[5]), -np.abs(x[6])
    x[7] *= np.float32(1e-6)
    x[8, ::7] *= 50
    importance = (v[:1024] ** 2 + 0.01).astype(np.float32)
    importance[7::64] = 0
    return x, importance


def _same_bits(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    both_nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and bool((both_nan | (a.view(np.uint32) == b.view(np.uint32))).all())


def _decoded_by_package(raw: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float32]:
    if name in BY_DEFINITION:
        return BY_DEFINITION[name](raw)
    with np.errstate(all="ignore"):
        decoded: npt.NDArray[np.float32] = quants.dequantize(raw, GGMLQuantizationType[name])
        return decoded


def _fields_of_bits(raw: npt.NDArray[np.uint8], width: int, block_bytes: int) -> tuple[Any, Any]:
    """Blocks of an f16 and then fields of bits, lowest first: (..., blocks, 1) f32 and (..., blocks, n)."""
    blocks = raw.reshape(*raw.shape[:-1], -1, block_bytes)
    stream = np.unpackbits(np.ascontiguousarray(blocks[..., 2:]), axis=-1, bitorder="little")
    fields = stream.reshape(*stream.shape[:-1], -1, width) @ (1 << np.arange(width))
    return np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32), fields


def _q1_0(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """`dequantize_row_q1_0` in ggml-quants.c: a bit chooses d or -d."""
    d, positive = _fields_of_bits(raw, 1, 18)
    values: npt.NDArray[np.float32] = np.where(positive == 1, d, -d).reshape(*raw.shape[:-1], -1)
    return values


def _q2_0(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """`dequantize_row_q2_0` in ggml-quants.c: two bits less 1, times d."""
    d, fields = _fields_of_bits(raw, 2, 18)
    with np.errstate(all="ignore"):
        values: npt.NDArray[np.float32] = ((fields - 1).astype(np.float32) * d).reshape(*raw.shape[:-1], -1)
    return values


BY_DEFINITION = {"Q1_0": _q1_0, "Q2_0": _q2_0}  # types that the package has not


def _gauss(rows: int = 256, columns: int = 1024) -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)


def test_each_file_is_a_codec_of_its_name() -> None:
    assert sorted(name.upper() for name in FILES) == NAMES
    assert all(codec.name == name for name, codec in CODECS.items())
    assert len(NAMES) >= 28


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
    raw = CODECS[name].quantize(_gauss(4))
    decoded = CODECS[name].dequantize(raw)
    assert np.isfinite(decoded).all() and _same_bits(decoded, _decoded_by_package(raw, name))


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "TQ1_0", "TQ2_0"])
def test_quantises_as_the_package_does(name: str) -> None:
    constant = np.ones((1, 1024), np.float32)
    values = np.concatenate([_gauss(16), _gauss(16) * np.float32(1e-6), 0 * constant, -3 * constant])
    expected = quants.quantize(values, GGMLQuantizationType[name]).view(np.uint8)
    assert np.array_equal(CODECS[name].quantize(values), expected.reshape(len(values), -1))


def test_quantises_one_bit_by_sign_and_mean() -> None:
    """`quantize_row_q1_0_ref`: d is the mean magnitude, summed in f32 from the first to the last; zero is positive."""
    x = _gauss(2, 256)
    x[0, 5] = 0
    decoded = CODECS["Q1_0"].quantize(x).view(CODECS["Q1_0"].dtype).reshape(2, 2)
    for row, block in np.ndindex(2, 2):
        values, total = x[row, block * 128 : block * 128 + 128], np.float32(0)
        for value in values:
            total += abs(value)
        assert decoded[row, block]["d"] == np.float16(total / np.float32(128))
        assert np.array_equal(np.unpackbits(decoded[row, block]["qs"], bitorder="little"), values >= 0)


def test_quantises_two_bits_by_the_widest() -> None:
    """`quantize_row_q2_0_ref`: quants -1, 0 and 1, halves away from zero."""
    x = np.zeros((1, 64), np.float32)
    x[0, :6] = [-2, 1, 0.9999, -1, 2, -0.9]
    assert CODECS["Q2_0"].dequantize(CODECS["Q2_0"].quantize(x))[0, :6].tolist() == [-2, 2, 0, -2, 2, 0]


def test_nvfp4_scales() -> None:
    """Every E4M3 that is a number finds itself again; what is wider than 448 becomes 448 (`ggml_fp32_to_ue4m3`)."""
    from edgellm.formats.codecs import nvfp4

    quants = np.arange(0x7F, dtype=np.uint8)
    assert np.array_equal(nvfp4._e4m3(2 * nvfp4._half_scale(quants)), quants)
    assert nvfp4._e4m3(np.array([1e9, 449, 2**-11], np.float32)).tolist() == [0x7E, 0x7E, 0]
    assert not nvfp4._half_scale(np.array([0, 0x7F, 0x80], np.uint8)).any()


@pytest.mark.parametrize("name", sorted(LLAMA_CPP))
def test_quantises_as_llama_cpp_does(name: str) -> None:
    x, importance = _patterned()
    for weights, expected in zip((None, importance), LLAMA_CPP[name], strict=True):
        decoded = CODECS[name].dequantize(CODECS[name].quantize(x, weights)) + np.float32(0)  # no negative zeros
        assert hashlib.sha256(decoded.tobytes()).hexdigest()[:16] == expected, "plain" if weights is None else "with importance"


def test_bf16_of_special_values() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, -0.0, 3.4e38, 1e-40, 1.00390625, 1.01171875]], np.float32)
    values = np.append(values, np.array([[0x7F800001, 0xFFFFFFFF]], np.uint32).view(np.float32), axis=1)
    expected = quants.quantize(values, GGMLQuantizationType.BF16).view(np.uint8)
    assert np.array_equal(CODECS["BF16"].quantize(values), expected.reshape(1, -1))


@pytest.mark.parametrize("name", NAMES)
def test_quantisation_error_on_noise(name: str) -> None:
    x, codec = _gauss(GAUSS_ROWS.get(name, 256)), CODECS[name]
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
def test_rows_of_partial_blocks_are_refused(name: str) -> None:
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
