"""Products, embeddings and quantised activations of every type on every ISA level, against the codecs and float64."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import ISA_LEVELS

from edgellm.backends.cpu import abi, jit
from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.ops.dense import EMBED, MATMUL, QUANTISE
from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.backends.cpu.traits import (
    BLOCK,
    FLOAT_COLUMNS,
    FLOAT_ELEMENTS,
    FLOAT_ROWS,
    SUPERBLOCK,
    TILE_COLUMNS,
    TRAITS,
    q8_row_bytes,
    scratch_bytes,
)
from edgellm.formats.codecs import CODECS
from edgellm.ops.dense import GATES_OF_PRODUCTS

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
# Types that few files have: test_rare_types.py puts them through the same, most of them in the slow run.
RARE = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0", "NVFP4")
COMMON = [name for name in TRAITS if name not in RARE]
QUANTISED = [name for name, traits in TRAITS.items() if traits.quantise]
FORMS = ["q8", "q8_by_block"]
FLOATS = [name for name, traits in TRAITS.items() if traits.activation == "f32"]
# (weight rows, columns): fewer rows than a tile, no whole number of tiles, with and without tiles of columns and rest
SIZES = [(19, 1), (3, 9), (41, 7), (24, 2), (9, 3), (35, 37), (16, 16), (17, 29)]


class Kernels(dict[str, Callable[[int, int, int], None]]):
    """By their ids, of one ISA level; what `items` lack is made when a test takes it."""

    def __init__(
        self,
        level: Level,
        items: Iterable[tuple[str, Callable[[int, int, int], None]]] = (),
        make: Callable[[str], Callable[[int, int, int], None]] | None = None,
    ) -> None:
        super().__init__(items)
        self.level, self._make = level, make

    def __missing__(self, kernel: str) -> Callable[[int, int, int], None]:
        assert self._make, kernel
        self[kernel] = self._make(kernel)
        return self[kernel]

    def by_block(self, form: str) -> bool:
        """True if rows of this form have whole blocks."""
        return form == "q8_by_block" and self.level.by_block

    def order(self, form: str, rows: int) -> str:
        """How quants lie in so many rows, which make no tile."""
        if self.level.lanes_from and rows >= self.level.lanes_from:
            return "lanes"
        order = "blocks" if self.by_block(form) else "halves"
        return f"apart, {order}" if self.level.single_column == "apart" else order


@pytest.fixture(scope="module", params=ISA_LEVELS)
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    """Kernels of one ISA level, as the back end gets them: compiled for that ISA level alone, linked from object code."""
    linker = jit.Linker()
    yield compiled(request.param, linker)
    assert linker  # the code lives as long as it does


def compiled(isa_level: str, linker: jit.Linker) -> Kernels:
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return Kernels(LEVELS[isa_level], make=lambda kernel: signature(jit.kernel_addresses({kernel}, isa_level, linker)[kernel]))


def run(kernel: Callable[[int, int, int], None], words: Array, threads: int = 1) -> None:
    for thread in range(threads):  # one after the other: no thread may need another's result
        kernel(words.ctypes.data, thread, threads)


def quantise(kernels: Kernels, x: Floats, threads: int = 1, form: str = "q8") -> Array:
    """(T, k) f32 to the rows of a quantised form, in memory that is dirty before."""
    space = np.full((-(-len(x) // TILE_COLUMNS) * TILE_COLUMNS, q8_row_bytes(x.shape[1])), 0xA5, np.uint8)
    rows, step = space[: len(x)], np.array([len(x), 0], np.int64)
    run(
        kernels[f"quantise:{form}"],
        QUANTISE.record(
            step=step.ctypes.data,
            x=x.ctypes.data,
            x_stride=x.strides[0],
            k=x.shape[1],
            out=rows.ctypes.data,
            out_stride=rows.strides[0],
        ),
        threads,
    )
    return rows


def parts(rows: Array, k: int, order: str = "halves") -> tuple[Array, Floats, Array]:
    """Quants (T, blocks, 32), scales (T, blocks), and sums (3, T, blocks): of blocks, of first and of second halves.

    Of less than a tile of rows: how tiles lie depends on the ISA level, and products of them are held against those of single rows.
    """
    assert len(rows) < TILE_COLUMNS
    blocks = -(-k // SUPERBLOCK) * SUPERBLOCK // BLOCK
    packed = np.ascontiguousarray(rows[:, : blocks * 48])
    quants = packed[:, : blocks * BLOCK]
    numbers = packed[:, blocks * BLOCK :].copy().view(np.int32).reshape(-1, 4, blocks)
    if order.startswith("apart, "):  # blocks 0 4 1 5 2 6 3 7, of two the first halves, then the second ones
        superblocks = k // SUPERBLOCK + (k % SUPERBLOCK > SUPERBLOCK // 2)
        apart, quants = np.split(quants, [superblocks * SUPERBLOCK], axis=1)
        order = order.removeprefix("apart, ")
        before = apart.reshape(len(rows), superblocks, 4, 2, 2, 16).transpose(0, 1, 4, 2, 3, 5).reshape(apart.shape)
    else:
        before = quants[:, :0]
    if order == "halves":
        quants = quants.reshape(len(rows), quants.shape[1] // 128, 2, 4, 16).swapaxes(2, 3)
    if order == "lanes":  # of a superblock: blocks 0 2 4 6 1 3 5 7, four quants of each at a time
        lanes = [0, 4, 1, 5, 2, 6, 3, 7]
        quants = quants.reshape(-1, blocks // 8, 8, 8, 4)[:, :, :, lanes].swapaxes(2, 3)
        numbers = numbers.reshape(-1, 4, blocks // 8, 8)[..., lanes].reshape(-1, 4, blocks)
    numbers = numbers.swapaxes(1, 2)
    quants = np.concatenate([before, quants.reshape(len(rows), -1)], axis=1).reshape(-1, blocks, BLOCK).view(np.int8)
    return quants, numbers[..., 0].copy().view(np.float32), -numbers[..., 1:].transpose(2, 0, 1)


def meaning(rows: Array, k: int, order: str = "halves") -> Array:
    """The values of quantised rows, (T, k) f64."""
    quants, scales, _ = parts(rows, k, order)
    values: Array = (quants.astype(np.float64) * scales[..., None]).reshape(len(rows), -1)[:, :k]
    return values


def weights(name: str, n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows of random bytes, so that every code and scale occurs, and their values (n, k) f64."""
    rng, block = np.random.default_rng(seed), CODECS[name].dtype
    if TRAITS[name].activation == "f32":
        raw = CODECS[name].quantize(rng.standard_normal((n, k), np.float32))
    else:
        blocks = rng.integers(0, 256, (n, k // TRAITS[name].block, block.itemsize), np.uint8).view(block)[..., 0]
        for field in ("d", "m", "dmin"):
            if field in (block.names or ()) and block[field] == np.float16:
                blocks[field] = rng.standard_normal(blocks.shape) * 0.1
        if name == "MXFP4":
            blocks["e"] = rng.integers(115, 130, blocks["e"].shape)
        if name == "IQ1_M":  # the exponent's top bits of d, in the last word's: no infinity, no NaN
            blocks["scales"][..., 3] &= 0xBFFF
        raw = blocks.view(np.uint8).reshape(n, -1)
    return raw, CODECS[name].dequantize(raw).astype(np.float64)


def product(
    kernels: Kernels,
    name: str,
    raw: Array,
    k: int,
    x: Array,
    *,
    threads: int = 1,
    bias: Floats | None = None,
    residual: Floats | None = None,
    gate: Floats | None = None,
    act: str = "",
    kernel: str | None = None,
) -> Floats:
    """(T, rows) f32. `gate`: by whose activation `act` the results are multiplied, in its place. `kernel`: another one than the
    type's.
    """
    space, step = np.full(scratch_bytes(name, k) + 1, 0xFF, np.uint8), np.array([0, len(x)], np.int64)  # f32 NaN all over
    out = np.full((len(x), len(raw) + 1), 77, np.float32)
    words = {"bias": bias.ctypes.data} if bias is not None else {}
    if residual is not None:
        words |= {"residual": residual.ctypes.data, "residual_stride": residual.strides[0]}
    if gate is not None:
        out[:, :-1] = gate
        words |= {"residual": out.ctypes.data, "residual_stride": out.strides[0], "act": 1 + GATES_OF_PRODUCTS.index(act)}
    run(
        kernels[kernel or TRAITS[name].matmul],
        MATMUL.record(
            step=step.ctypes.data,
            weights=raw.ctypes.data,
            row_bytes=raw.strides[0],
            n=len(raw),
            k=k,
            x=x.ctypes.data,
            x_stride=x.strides[0],
            out=out.ctypes.data,
            out_stride=out.strides[0],
            count=abi.N_OUTPUTS,
            scratch=space.ctypes.data,
            **words,
        ),
        threads,
    )
    assert (out[:, -1] == 77).all()  # nothing written past the rows
    return out[:, :-1]


def activations(kernels: Kernels, name: str, columns: int, k: int, only: int | None = None) -> tuple[Array, Array]:
    """Rows (or one of them) as the kernel of this type takes them, and what they stand for."""
    x = np.random.default_rng(9).standard_normal((columns, k), np.float32)
    if only is not None:
        x = x[only : only + 1]
    if TRAITS[name].activation == "f32":
        return x, x.astype(np.float64)
    form = TRAITS[name].activation
    few = [quantise(kernels, x[first : first + TILE_COLUMNS - 1], form=form) for first in range(0, len(x), TILE_COLUMNS - 1)]
    return quantise(kernels, x, form=form), np.concatenate([meaning(rows, k, kernels.order(form, len(rows))) for rows in few])


def lengths(name: str) -> list[int]:
    some = {1: [172, 1, 45], 32: [864, 32, 224, 384], 64: [832, 64, 192], 128: [896, 128], 256: [1280, 768, 256]}
    return some[TRAITS[name].block]


@pytest.mark.parametrize("name", COMMON)
def test_products(kernels: Kernels, name: str) -> None:
    """Right within the traits' ceiling; the same bits for any number of threads and columns together."""
    for k in lengths(name):
        for n, columns in SIZES:
            raw, exact = weights(name, n, k)
            x, values = activations(kernels, name, columns, k)
            got = product(kernels, name, raw, k, x)
            size = np.abs(values) @ np.abs(exact).T
            assert (np.abs(got - values @ exact.T) <= TRAITS[name].ceiling * size).all(), (n, k, columns)
            for threads in (2, 3):
                assert np.array_equal(got, product(kernels, name, raw, k, x, threads=threads)), (n, k, columns, threads)
            alone = [product(kernels, name, raw, k, activations(kernels, name, columns, k, c)[0])[0] for c in range(columns)]
            assert np.array_equal(got, alone), (n, k, columns)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("k", [FLOAT_ELEMENTS + 8, 2 * FLOAT_ELEMENTS, FLOAT_ELEMENTS + 3])
def test_long_rows_of_floats(kernels: Kernels, name: str, k: int) -> None:
    """In parts, by any number of columns, the bits are those of one column."""
    n, most = FLOAT_ROWS + 7, 2 * FLOAT_COLUMNS + 3
    raw, exact = weights(name, n, k)
    x, values = activations(kernels, name, most, k)
    one_by_one = np.concatenate([product(kernels, name, raw, k, x[c : c + 1]) for c in range(most)])
    size = np.abs(values) @ np.abs(exact).T
    assert (np.abs(one_by_one - values @ exact.T) <= TRAITS[name].ceiling * size).all()
    for columns in (2, 3, 4, 5, 7, FLOAT_COLUMNS + 1, FLOAT_COLUMNS + 2, most):
        for threads in (1, 3):
            got = product(kernels, name, raw, k, x[:columns], threads=threads)
            assert np.array_equal(got, one_by_one[:columns]), (columns, threads)


@pytest.mark.parametrize("name", ["Q4_0", "F16"])
@pytest.mark.parametrize("columns", [1, 5, 35])
def test_bias_then_residual(kernels: Kernels, name: str, columns: int) -> None:
    raw, _ = weights(name, 21, 64)
    x, _ = activations(kernels, name, columns, 64)
    rng = np.random.default_rng(4)
    bias, residual = rng.standard_normal(21, np.float32), rng.standard_normal((columns, 30), np.float32)
    plain = product(kernels, name, raw, 64, x)
    assert np.array_equal(product(kernels, name, raw, 64, x, bias=bias), plain + bias)
    assert np.array_equal(product(kernels, name, raw, 64, x, residual=residual), plain + residual[:, :21])
    assert np.array_equal(product(kernels, name, raw, 64, x, bias=bias, residual=residual), (plain + bias) + residual[:, :21])


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
@pytest.mark.parametrize("act", GATES_OF_PRODUCTS)
def test_results_in_the_place_of_a_gate(kernels: Kernels, name: str, act: str) -> None:
    """The bits of the product, then of the elementwise kernel: of single columns, some, tiles; of rows that fill no group."""
    raw, _ = weights(name, 37, 256)
    rng = np.random.default_rng(4)
    bias = rng.standard_normal(37, np.float32)
    for columns in (1, 2, 3, 5, 7, 15, 16, 35):
        x, _ = activations(kernels, name, columns, 256)
        gate = 4 * rng.standard_normal((columns, 37), np.float32)
        gate[0, :2] = np.nan, -200
        step = np.array([0, columns], np.int64)
        for more in ({}, {"bias": bias}):
            plain, out = product(kernels, name, raw, 256, x, **more), np.empty((columns, 37), np.float32)
            run(
                kernels[f"elementwise:glu_{act}"],
                ELEMENTWISE.record(
                    step=step.ctypes.data,
                    a=gate.ctypes.data,
                    a_stride=gate.strides[0],
                    b=plain.ctypes.data,
                    b_stride=plain.strides[0],
                    out=out.ctypes.data,
                    out_stride=out.strides[0],
                    n=37,
                    count=abi.N_OUTPUTS,
                ),
                1,
            )
            for threads in (1, 3):
                got = product(kernels, name, raw, 256, x, gate=gate, act=act, threads=threads, **more)
                assert np.array_equal(got, out, equal_nan=True), (columns, threads)


@pytest.mark.parametrize("name", ["Q4_0", "Q2_K", "Q6_K"])
def test_the_last_tile_may_have_any_number_of_columns(kernels: Kernels, name: str) -> None:
    """Whatever stands in memory after them; also where rows do not fill the last group."""
    raw, _ = weights(name, 35, 256)
    x = np.random.default_rng(2).standard_normal((48, 256), np.float32)
    rows = quantise(kernels, x, form=TRAITS[name].activation)
    expected = product(kernels, name, raw, 256, rows)
    for columns in range(33, 48):
        rows = quantise(kernels, x[:columns], form=TRAITS[name].activation)
        for threads in (1, 2):
            assert np.array_equal(product(kernels, name, raw, 256, rows, threads=threads), expected[:columns]), (columns, threads)


def test_panel_of_several_groups(kernels: Kernels) -> None:
    """More groups of rows than fit the panel at a time, shared by threads."""
    raw, exact = weights("Q4_K", 150, 256)
    x, values = activations(kernels, "Q4_K", 7, 256)
    size = np.abs(values) @ np.abs(exact).T
    for threads in (1, 2, 5):
        got = product(kernels, "Q4_K", raw, 256, x, threads=threads)
        assert (np.abs(got - values @ exact.T) <= TRAITS["Q4_K"].ceiling * size).all()


def embeds_as_the_codec(kernels: Kernels, kernel: str, name: str, k: int, rows: int, change: Callable[[Array], None]) -> None:
    """Any bytes, scales that are infinite or NaN included, to the very bits of the codec; of a table that was changed."""
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (rows, k // TRAITS[name].block * TRAITS[name].block_bytes), np.uint8)
    ids, step = rng.integers(0, rows, 40).astype(np.int32), np.array([40, 0], np.int64)
    expected = CODECS[name].dequantize(raw)[ids]
    change(raw)
    for threads in (1, 3):
        out = np.full((40, k + 3), 77, np.float32)
        run(
            kernels[kernel],
            EMBED.record(
                step=step.ctypes.data,
                table=raw.ctypes.data,
                row_bytes=raw.strides[0],
                n=k,
                ids=ids.ctypes.data,
                out=out.ctypes.data,
                out_stride=out.strides[0],
            ),
            threads,
        )
        number = ~np.isnan(expected)
        assert np.array_equal(np.isnan(out[:, :k]), ~number)
        assert np.array_equal(out[:, :k][number].view(np.uint32), expected[number].view(np.uint32))
        assert (out[:, k:] == 77).all()


@pytest.mark.parametrize("name", COMMON)
def test_embedding_is_the_codecs(kernels: Kernels, name: str) -> None:
    k = {1: 45, 32: 96, 64: 192, 128: 384, 256: 512}[TRAITS[name].block]
    embeds_as_the_codec(kernels, TRAITS[name].embed, name, k, 50, lambda table: None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [32, 256, 864])
def test_quantised_activations(kernels: Kernels, k: int, form: str) -> None:
    x = np.random.default_rng(6).standard_normal((5, k), np.float32) * np.array([[1], [1e-20], [1e30], [0], [1e-3]], np.float32)
    rows = quantise(kernels, x, form=form)
    quants, scales, sums = parts(rows, k, kernels.order(form, len(rows)))
    filled = k // BLOCK
    blocks = x.reshape(5, filled, BLOCK)
    assert np.array_equal(scales[:, :filled], np.abs(blocks).max(axis=-1) / np.float32(127))
    assert not quants[:, filled:].any() and not scales[:, filled:].any() and not sums[:, :, filled:].any()
    exact = np.divide(blocks, scales[:, :filled, None], where=scales[:, :filled, None] > 0, out=np.zeros_like(blocks))
    assert np.abs(quants[:, :filled] - exact).max() <= 0.5001  # x * (1 / d) for x / d: an ulp or two from a half
    halves = quants.reshape(5, -1, 2, BLOCK // 2).sum(axis=-1, dtype=np.int32)
    blocks, offset = halves.sum(axis=-1, dtype=np.int32), kernels.level.tile_offset
    if offset and kernels.level.lanes_from and form == "q8_by_block":  # what products start from
        assert np.array_equal(sums, [offset * total for total in (blocks, halves[..., 0], halves[..., 1])])
    elif offset and kernels.level.lanes_from:  # the first sum in f32
        assert np.array_equal(-(-sums[0]).view(np.float32), blocks)
        assert np.array_equal(sums[1:], [offset * blocks, 0 * blocks])
    else:
        assert np.array_equal(sums, [blocks, halves[..., 0], halves[..., 1]])
    for threads in (2, 3):
        padding = slice(0, -(-k // SUPERBLOCK) * SUPERBLOCK // BLOCK * 48)
        assert np.array_equal(rows[:, padding], quantise(kernels, x, threads, form)[:, padding])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [32, 256, 864, 2048])
def test_full_tiles_are_quantised_as_their_rows_are(kernels: Kernels, k: int, form: str) -> None:
    """One thread takes whole tiles, of two hundred each takes one row."""
    x = np.random.default_rng(7).standard_normal((67, k), np.float32)
    x *= np.float32(10) ** np.random.default_rng(8).integers(-42, 38, (67, 1)).astype(np.float32)
    x[3], x[20, 5], x[35, 7], x[36, k - 1], x[50, :32] = 0, np.nan, np.inf, -np.inf, np.arange(32) * 2 + 1  # halves of 127
    padding = slice(0, -(-k // SUPERBLOCK) * SUPERBLOCK // BLOCK * 48)
    assert np.array_equal(*(quantise(kernels, x, threads, form)[:, padding] for threads in (1, 200)))


def test_activations_that_are_no_numbers_show(kernels: Kernels) -> None:
    """A block with NaN or infinity gives no finite result, its neighbours keep their values, and tiny values stay finite."""
    x = np.ones((4, 64), np.float32)
    x[0, 3], x[1, 40], x[2, 7], x[3] = np.nan, np.inf, -np.inf, 1e-42
    rows = quantise(kernels, x)
    raw, _ = weights("Q8_0", 8, 64)
    got = product(kernels, "Q8_0", raw, 64, rows)
    assert not np.isfinite(got[:3]).any() and np.isfinite(got[3]).all()
    with np.errstate(invalid="ignore"):
        values = meaning(rows, 64, kernels.order("q8", 4))
    assert not np.isfinite(values[0, :32]).any() and np.isfinite(values[0, 32:]).all()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made with mprotect")
@pytest.mark.parametrize("name", COMMON)
def test_nothing_is_read_past_the_last_row(kernels: Kernels, name: str) -> None:
    """Weights and activations end where the next page may not be touched; a read past them would kill the process."""
    for k in lengths(name):
        raw, exact = weights(name, 11, k)
        x, values = activations(kernels, name, 6, k)
        with guarded(raw) as last_weights, guarded(x) as last_activations:
            got = product(kernels, name, last_weights, k, last_activations)
            size = np.abs(values) @ np.abs(exact).T
            assert (np.abs(got - values @ exact.T) <= TRAITS[name].ceiling * size).all()
            del last_weights, last_activations


class guarded:
    """A copy of an array at the very end of readable memory."""

    def __init__(self, array: Array) -> None:
        page = mmap.PAGESIZE
        size = -(-array.nbytes // page) * page
        self.memory = mmap.mmap(-1, size + page)
        self.guard = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + size
        flat = np.frombuffer(self.memory, np.uint8, array.nbytes, size - array.nbytes)
        self.copy = flat.view(array.dtype).reshape(array.shape)
        self.copy[:] = array

    def __enter__(self) -> Array:
        self.protect(0)
        return self.copy

    def __exit__(self, *_: object) -> None:
        self.protect(mmap.PROT_READ | mmap.PROT_WRITE)

    def protect(self, mode: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self.guard), ctypes.c_size_t(mmap.PAGESIZE), mode) == 0
