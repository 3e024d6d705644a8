"""The ISA levels: what each needs, what its code is compiled for, and by which strategies its kernels compute.

A new level is a row here, with instructions of its own in simd/ where those of another level do not serve it. This file imports no
compiler: it is read at every start. Where the strategies are kept: kernels/*/__init__.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

VECTOR_OF_QUANTS: Final = 16  # quants of a half block, a byte each


@dataclass(frozen=True, slots=True)
class Level:
    """One ISA level.

    `instructions`: a class of simd/. `family`: the processors that may have it, "" for all. `needs`: LLVM's names of features, one
    of these sets. `processor`: LLVM's name of the one that it is compiled for, "" for the host; `features`: more and fewer of
    them, None for those of `needs` that the host has.

    Strategies. `dot`: how products of bytes are added up: "widened" to i16 first; u8 x i8 in "pairs", as saturating i16; four
    "unsigned" x i8 in an i32 (so quants use all of u8, with the offset 128); i8 x i8 in "i16"; four "signed" ones in an i32.
    `openers`: of block types, "neon" with those that AArch64 opens in fewer instructions.
    `few_columns`: "rows" of weights by up to four columns, the same in "neon" vectors, or with "lanes", a block each, from
    `lanes_from` columns on (block_lanes.py). `single_column`: vectors of neighbouring blocks ("near"), of blocks q and q + 4
    ("apart"), whose sums need no permutes, or of two superblocks at once ("pairs": superblock_pairs.py).
    `tile`: sixteen columns by "vectors" of rows; two "groups" of rows sharing the loads of activations (panel_groups.py); by the
    tile "unit" (panel_tiles.py); by "neon" lanes, or a "matrix" of two by two (neon_tile.py). `tiled_from`: columns from which on
    full sixteens are tiles. `tile_columns`: how these are split so that sums stay in registers, with one scale for a block and
    with two. `column_by_column`: both dots of a column are finished before the next one's.
    `panel_bytes`: of unpacked rows, to stay in the second-level cache; `small_panel_columns`: up to which a panel has one group of
    rows only. `float_columns`: of a tile of float weights. `tried`: used only after a self-test, with the system's permission.
    """

    name: str
    instructions: str
    family: Literal["", "x86", "arm"]
    needs: tuple[frozenset[str], ...]
    processor: str
    features: str | None
    vector_bytes: int
    dot: Literal["widened", "pairs", "unsigned", "i16", "signed"]
    openers: Literal["common", "neon"] = "common"
    few_columns: Literal["rows", "lanes", "neon"] = "rows"
    lanes_from: int | None = None
    single_column: Literal["near", "apart", "pairs"] = "near"
    tile: Literal["vectors", "groups", "unit", "neon", "matrix"] = "vectors"
    tiled_from: int = 16
    tile_columns: tuple[tuple[int, ...], ...] = ((4, 4, 4, 4), (4, 4, 4, 4))
    column_by_column: bool = True
    panel_bytes: int = 1 << 18
    small_panel_columns: int = 0
    float_columns: int = 3
    tried: bool = False

    @property
    def lanes(self) -> int:
        """f32 lanes that loops compute with: of a vector, or of two of 128 bits."""
        return max(8, self.vector_bytes // 4)

    @property
    def tile_rows(self) -> int:
        """Weight rows of a tile of many columns, and of an interleaved group: lanes of a vector of sums."""
        return self.lanes

    @property
    def lane_rows(self) -> int:
        """Rows side by side in the vectors of block_lanes.py, 8 lanes each; as many such vectors are multiplied at once."""
        return self.lanes // 8

    @property
    def together(self) -> int:
        """Blocks whose halves (16 quants each) fill a vector."""
        return self.vector_bytes // VECTOR_OF_QUANTS

    @property
    def by_block(self) -> bool:
        """True if types of `Traits.by_block` come block by block; on AArch64 first halves of four blocks are two loads."""
        return self.together > 1

    @property
    def mins_first(self) -> bool:
        """True if a block's mins are weighed while its dot products are in flight; on AArch64 they would hold registers that a
        tile needs.
        """
        return self.together > 1

    @property
    def tile_groups(self) -> int:
        """Groups of rows that a tile of activations is multiplied by at once."""
        return 2 if self.tile in ("groups", "unit") else 1

    @property
    def wide_quants(self) -> bool:
        """True if products take unsigned quants up to 255; all take them up to 127. Signed ones are offset by 128."""
        return self.dot == "unsigned"

    @property
    def tile_offset(self) -> int | None:
        """Of all quants in a panel that have an offset; tiles then have sums as traits.py says."""
        return 128 if self.wide_quants else None

    @property
    def sign_sums(self) -> bool:
        """True if products of signed quants in tiles start from the sums of their negatives."""
        return self.dot in ("pairs", "unsigned")

    @property
    def interleaved_rows(self) -> int:
        """Rows of a group of interleaved weights; 0 where there are no kernels for them."""
        return self.tile_rows if self.wide_quants else 0


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq", "avx512vnni"}
_NEON = frozenset({"neon"})
_DOTPROD = _NEON | {"lse", "dotprod"}
_FIVES = ((6, 5, 5), (4, 4, 4, 4))

GENERIC = Level("generic", "generic.Generic", "", (frozenset(),), "generic", "", 32, "widened")
AVX2 = replace(
    GENERIC,
    name="avx2",
    instructions="avx2.Avx2",
    family="x86",
    needs=(_AVX2,),
    processor="x86-64-v3",
    features=None,
    dot="pairs",
    few_columns="lanes",
    lanes_from=3,
    single_column="apart",
    tile="groups",
    tiled_from=32,
    tile_columns=_FIVES,
    column_by_column=False,
)
AVXVNNI = replace(  # AVX-512 machines can run its code in another encoding, for tests
    AVX2, name="avxvnni", instructions="avxvnni.AvxVnni", needs=(_AVX2 | {"avxvnni"}, _AVX512), dot="unsigned", tile="vectors"
)
AVX512VNNI = replace(  # needs no VBMI, which the first processors with VNNI lack
    AVXVNNI,
    name="avx512vnni",
    instructions="avx512vnni.Avx512Vnni",
    needs=(_AVX512,),
    processor="",
    vector_bytes=64,
    single_column="pairs",
    tiled_from=16,
    tile_columns=((16,), (16,)),
    column_by_column=True,
    panel_bytes=1 << 19,
    small_panel_columns=64,
)
AMX = replace(
    AVX512VNNI,
    name="amx",
    instructions="amx.Amx",
    needs=(_AVX512 | {"amx-tile", "amx-int8"},),
    tile="unit",
    small_panel_columns=0,
    tried=True,
)
# AArch64: processors whose order of instructions suits the level, less the features that it does not ask for.
NEON = replace(  # Raspberry Pi 4
    GENERIC,
    name="neon",
    instructions="neon.Neon",
    family="arm",
    needs=(_NEON,),
    processor="cortex-a72",
    features="-aes,-sha2,-crc",
    vector_bytes=16,
    dot="i16",
    openers="neon",
    few_columns="neon",
    tile="neon",
    float_columns=2,
)
DOTPROD = replace(  # Raspberry Pi 5, Apple M1
    NEON,
    name="dotprod",
    instructions="neon.DotProd",
    needs=(_DOTPROD,),
    processor="cortex-a76",
    features="-aes,-sha2,-crc,-rcpc,-fullfp16,-ssbs,+dotprod,+lse",
    dot="signed",
    tile_columns=_FIVES,
)
I8MM = replace(  # Apple M2, Graviton 3, Snapdragon X
    DOTPROD,
    name="i8mm",
    instructions="neon.I8mm",
    needs=(_DOTPROD | {"i8mm"},),
    features=f"{DOTPROD.features},+i8mm",
    tile="matrix",
    tile_columns=GENERIC.tile_columns,  # six would spill
)

LEVELS: dict[str, Level] = {level.name: level for level in (GENERIC, AVX2, AVXVNNI, AVX512VNNI, AMX, NEON, DOTPROD, I8MM)}


def ladder(family: str) -> tuple[Level, ...]:
    """The levels of a family of processors, lowest first."""
    return tuple(level for level in LEVELS.values() if level.family in ("", family))
