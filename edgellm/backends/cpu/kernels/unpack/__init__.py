"""Block types opened: quants, scales and mins of superblocks of 256 weights, as IR, for the products in ../matmul.

superblock.py       entry: opens a superblock, multiplies it by a few columns, weighs integer sums; `Shape` says what a type needs
openers.py          by type: unpack.py (types of 32, K types, IQ4, MXFP4), unpack_grids.py (IQ types, points from tables),
                    unpack_ternary.py (TQ1_0, TQ2_0, Q1_0, Q2_0, NVFP4); neon_unpack.py where AArch64 needs fewer instructions
panel_rows.py       sixteen rows opened at once for a panel (AVX-512 VNNI): half as many bytes are shuffled as row by row; of eight
                    rows at once types of 32 are opened no faster, so AVX2 opens row by row
row_words.py        where the words of such rows lie: as in the file, or interleaved in memory
repack              rows interleaved whose bits change places (Q3_K and others), faster than by NumPy
embed               rows of embedding tables, every type; embed_interleaved of interleaved tables
affine.py           whole groups of MLX's quants as float32, for products of many rows on MLX's CPU build
tables.py           constant tables in object code
"""
