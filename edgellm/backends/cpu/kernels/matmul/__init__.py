"""Products with weight matrices: out = x W' (+ bias) (+ residual, or times an activated gate).

weights and columns             kernel, and the file of its inner loop
F32, F16, BF16                  matmul_float: tiles of four rows by one to three columns
quantised, 1 column             matmul: row.py, a superblock's blocks as lanes, points from tables a turn ahead (two thirds of
                                the time for IQ2_XXS on Zen 3); superblock_pairs.py (AVX-512) for Q2_K and Q3_K, which otherwise
                                take longer than memory does; neon_rows.py (AArch64), chains that save a tenth of all instructions
quantised, 2 columns            the same without pairs; at levels without lanes, up to 4 columns at once
quantised, 3 and more           block_lanes.py (x86): a lane per block, weights turned once for all columns; two_rows.py opens two
                                rows at once (AVX-512)
tiles of 16 columns             panel.py: rows unpacked once into a panel; panel_groups.py (AVX2): two groups of rows share loads
 (from 16, on AVX2 from 32)     of activations; panel_tiles.py (AMX); neon_tile.py (AArch64); folding.py: scales folded into small
                                quants, one dot product a block instead of two (VNNI, dotprod)
interleaved rows                matmul_interleaved: interleaved.py, a lane per row; prefetched on Zen 5 only, 1.1 to 1.5 times as
                                fast there, while a Zen 4 takes up to twice as long with it (../prefetch.py)
MLX's quants, for its CPU build affine_rows: up to 16 columns in f32, tiles of eight sums, weights decoded in registers; of more
                                BLAS is faster
an adapter's factors            low_rank: 16-column products took 6 times as long
a matrix for each head          heads: calls `matmul` head by head

matmul.py chooses between few_columns.py, which streams raw rows, eight at a time, and many_columns.py, which passes tiles over
panels. quantise makes "q8" rows of activations (../../traits.py), of a tile by quantise_tile.py; output.py stores results. All ways
give the same bits.
"""
