"""Grids of points on MLX: tables give the codecs' numbers, and so does the source for Metal, compiled as C++ with Metal's words."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tiny_blocks import raw_type
from tiny_models import tiny_model

import edgellm
from edgellm.arch import load_graph
from edgellm.formats.codecs import CODECS
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.weights import WeightStore

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

from edgellm.backends.mlx import grid_matrix  # noqa: E402
from edgellm.backends.mlx.grid_matrix import Grid, decoded, kernel_works  # noqa: E402
from edgellm.backends.mlx.matrices import Picked  # noqa: E402
from edgellm.backends.mlx.metal_source import HEADER, source  # noqa: E402
from edgellm.backends.mlx.octets import DEFINITIONS, points  # noqa: E402

ROWS, COLUMNS = 24, 768
PLAIN = ("IQ4_NL", "Q1_0", "TQ1_0")  # one d, and quants that may be any bytes
METAL = """
#include <cstring>
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
typedef _Float16 half;
#define device
struct { uint x, y, z; } thread_position_in_grid;
float all_lanes;
template <class To, class From> To as_type(From bits) { To to; memcpy(&to, &bits, sizeof to); return to; }
uint popcount(uint n) { return __builtin_popcount(n); }
float simd_sum(float n) { return all_lanes += n; }
"""
CALL = """
extern "C" void %s(const uchar* w, const float* x, const uint* first, const signed char* coordinates, float* y,
                   uint COLUMNS, uint ROWS, uint ROW_BYTES, uint T) {
    for (uint i = 0; i < T; i++) for (uint j = 0; j < ROWS; j++) {
        all_lanes = 0;
        for (int k = 31; k >= 0; k--) { thread_position_in_grid = {uint(k), j, i}; [&] { %s }(); }
    }
}
"""


def blocks(kind: str, rows: int = ROWS) -> npt.NDArray[np.uint8]:
    """Random bytes, with an f16 d that is a number of usual size."""
    if kind in PLAIN:
        rng, codec = np.random.default_rng(5), CODECS[kind]
        raw = rng.integers(0, 256, (rows, COLUMNS // codec.n * codec.dtype.itemsize), np.uint8)
        raw.view(codec.dtype)["d"] = rng.uniform(0.7, 1.3, (rows, COLUMNS // codec.n))
        return raw
    values = np.zeros((rows, COLUMNS), np.float32)  # of which random blocks make nothing
    return raw_type(values, gguf.GGMLQuantizationType[kind], 5)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_tables_give_the_codecs_bits(kind: str) -> None:
    raw = blocks(kind)
    np.testing.assert_array_equal(np.array(decoded(mx.array(raw), kind)), CODECS[kind].dequantize(raw))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler here to read the source for Metal with")
    folder = tmp_path_factory.mktemp("metal")
    text = METAL + HEADER + "".join(CALL % (kind.lower(), source(kind)) for kind in DEFINITIONS)
    (folder / "all.cpp").write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "all.so", folder / "all.cpp"], check=True)
    return ctypes.CDLL(str(folder / "all.so"))


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_source_for_metal_gives_the_same_products(compiled: ctypes.CDLL, kind: str) -> None:
    raw, grid, rng = blocks(kind), np.ascontiguousarray(points(kind)), np.random.default_rng(6)
    x, first, n = rng.standard_normal((3, COLUMNS)).astype(np.float32), np.array([0, 16, 7], np.uint32), 8
    got = np.zeros((3, n), np.float32)
    arrays = (ctypes.c_void_p(array.ctypes.data) for array in (raw, x, first, grid, got))
    getattr(compiled, kind.lower())(*arrays, *map(ctypes.c_uint, (COLUMNS, n, raw.shape[1], 3)))
    every = x @ CODECS[kind].dequantize(raw).T
    wanted = np.stack([row[at : at + n] for row, at in zip(every, first.tolist(), strict=True)])
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("piece", [COLUMNS * 8, COLUMNS * 8 * 64])
def test_rows_of_chosen_experts(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Few of them decoded by themselves, or all experts in pieces."""
    monkeypatch.setattr(grid_matrix, "PIECE", piece)
    raw, x = blocks("IQ2_XS", 5 * 10), np.random.default_rng(7).standard_normal((4, 1, COLUMNS)).astype(np.float32)
    experts = np.array([[0, 4], [1, 2], [4, 3], [2, 0]], np.uint32)
    got = Grid(mx.array(raw), "IQ2_XS", False).gathered(mx.array(x), mx.array(experts), Picked(10, 2, 10))
    weights = CODECS["IQ2_XS"].dequantize(raw).reshape(5, 10, -1)[:, 2:]
    wanted = np.einsum("tc,tkrc->tkr", x[:, 0], weights[experts])
    assert got.shape == (4, 2, 8) and np.abs(np.array(got) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", [kind for kind in DEFINITIONS if kind != "Q1_0"])  # gguf has no encoder for it
def test_a_model_agrees_with_the_reference(tmp_path: Path, kind: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", "qwen3moe", kind)
    ids = list(range(5, 20))
    opened = open_gguf(path)
    _, graph = load_graph(opened)
    weights = WeightStore(opened)
    wanted = Reference(graph, weights).logits(ids)
    weights.close()
    with edgellm.load(path, backend="mlx", kv_type="f32") as model:
        got = model.logits(ids)
    assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max()


def test_without_metal_there_is_no_kernel() -> None:
    if mx.metal.is_available():
        assert all(kernel_works(kind) for kind in DEFINITIONS)
    else:
        assert not kernel_works("IQ2_XXS")
