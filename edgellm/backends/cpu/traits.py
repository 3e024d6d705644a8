"""One row per tensor type that the CPU back end computes with: its kernels and the form it wants its activations in.

This module knows no numba: plans are built from it also where all kernels come from the cache.

The "q8" form of a row of k activations, k padded with zeros to full superblocks of 256, b = k / 32 blocks after padding:
    [0, 32 b)     int8 quants, nearest integer of x / d; of every four blocks the first 16 quants of each, then the second 16
                  ("q8_by_block", for types whose half blocks have scales of their own: on most ISA levels block after block);
at ISA levels with `rows_apart`, but in a last superblock of four blocks or fewer: the first 16 quants of blocks 0 and 4,
                  then the second 16, the same of blocks 1 and 5, and so on
    [32 b, 36 b)  f32 d of each block, its largest magnitude / 127
    [36 b, 40 b)  i32 minus the sum of the block's quants
    [40 b, 44 b)  i32 minus the sum of the quants of the block's first half; [44 b, 48 b) of its second half
Of T rows, `lanes_from` of the ISA level at least, a superblock's quants come four at a time instead, quants 0 to 3 of each block,
then 4 to 7, and so on; blocks, and their numbers in the other sections, in the order 0 2 4 6 1 3 5 7. Of T rows, `tiled_from` of
the ISA level at least, every sixteen, in the place of these rows, are a tile instead: for block j of every superblock, and then
superblock by superblock, a record of 768 bytes: for g = 0..7 the quants 4 g to 4 g + 3 of the sixteen rows (at ISA levels with
`tiles`: all quants of the first row, then of the second, and so on), then their d, and their three sums likewise. The last tile
may have fewer rows, in the memory of sixteen. With `full_tiles` (rows of experts, which follow each other without gaps) only full
sixteens are tiles, and the rows after them lie as they do where there are none.
Of T rows in either form, at ISA levels with a `tile_offset`, the first sum is f32, and in place of the others is what products
start from, that offset times the sum of the block; in "q8_by_block" each sum is such a product.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.formats.ggml_types import TYPES_BY_NAME

SUPERBLOCK = 256  # elements that a kernel takes at a time
BLOCK = 32  # activations that share a scale
ROW_ALIGNMENT = 64
TILE_COLUMNS = 16  # activation rows of a tile
PANEL_ROWS = 64  # weight rows unpacked at a time: activations are read once per panel
PANEL_BYTES = 1 << 19  # of unpacked rows, where more than PANEL_GROUPS groups of 16 fit
PANEL_GROUPS = 2  # of unpacked rows, however long they are
TOTALS_OF_TILES = 2 * PANEL_ROWS * TILE_COLUMNS * 4  # bytes of a panel's sums with two tiles
FLOAT_ROWS, FLOAT_COLUMNS = 32, 48  # of products with "f32" activations: that go together, multiples of tiles
FLOAT_ELEMENTS = 512  # of longer rows so many at a time


@dataclass(frozen=True, slots=True)
class Traits:
    """A tensor type on the CPU. `matmul`, `embed` and `quantise` are kernel ids; `activation` is "q8", "q8_by_block" or "f32".

    ceiling: the largest error of a product, relative to sum(|w| * |x|) of exact weights and the activations as the kernel gets
    them. Integer sums are exact, so only f32 rounding of scales and sums counts: a few ulp times the depth of the sum.
    """

    name: str
    activation: str
    ceiling: float

    @property
    def matmul(self) -> str:
        return f"matmul_float:{self.name}" if self.activation == "f32" else f"matmul:{self.name}"

    @property
    def embed(self) -> str:
        return f"embed:{self.name}"

    @property
    def quantise(self) -> str | None:
        """The kernel that makes its form of activations; None for f32."""
        return None if self.activation == "f32" else f"quantise:{self.activation}"

    @property
    def by_block(self) -> bool:
        """True if its quants, and those of its activations, come block by block at ISA levels with `by_block`."""
        return self.activation == "q8_by_block"

    @property
    def block(self) -> int:
        """Elements of a block."""
        return TYPES_BY_NAME[self.name].block

    @property
    def block_bytes(self) -> int:
        return TYPES_BY_NAME[self.name].block_bytes


_FLOATS = ("F32", "F16", "BF16")
_BLOCKS = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "IQ4_NL",
    "MXFP4",
    "Q4_K",
    "Q5_K",
    "IQ4_XS",
    "IQ1_S",
    "IQ2_XXS",
    "IQ3_XXS",
    "IQ3_S",
    "TQ1_0",
    "TQ2_0",
    "Q1_0",
    "Q2_0",
)
_HALF_BLOCKS = ("Q2_K", "Q3_K", "Q6_K", "IQ1_M", "IQ2_XS", "IQ2_S", "NVFP4")  # scales for 16 quants

TRAITS: dict[str, Traits] = {
    **{name: Traits(name, "f32", 1e-6) for name in _FLOATS},
    **{name: Traits(name, "q8", 1e-6) for name in _BLOCKS},
    **{name: Traits(name, "q8_by_block", 1e-6) for name in _HALF_BLOCKS},
}


def q8_row_bytes(k: int) -> int:
    """Bytes of a row of k activations in a "q8" form, with the padding to the next row; k is a multiple of 32.

    An odd number of superblocks' quants: sixteen rows then lie in different sets of a first-level cache (64 sets of 64 bytes).
    """
    return (-(-_superblocks(k) * SUPERBLOCK * 48 // BLOCK // SUPERBLOCK) | 1) * SUPERBLOCK


def scratch_bytes(name: str, k: int) -> int:
    """Bytes per thread that a product with rows of k elements needs: for sums of tiles, a superblock of rows and a panel, or for
    the sums of long rows of floats.
    """
    if TRAITS[name].activation == "f32":
        return FLOAT_ROWS * (FLOAT_COLUMNS + 3) * 64 if k > FLOAT_ELEMENTS else 0  # of 16 lanes each
    row_superblock = SUPERBLOCK + 4 * SUPERBLOCK // BLOCK * 4  # quants, and at most two vectors each of scales and mins
    group = 16 * row_superblock
    return TOTALS_OF_TILES + group + max(PANEL_BYTES, PANEL_GROUPS * group * _superblocks(k))


def _superblocks(k: int) -> int:
    return -(-k // SUPERBLOCK)
