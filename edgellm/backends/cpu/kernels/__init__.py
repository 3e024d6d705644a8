"""Compute kernels, in folders by purpose. Kernel `module:variant` is the function that `build(variant, isa)` of a module gives.

matmul/     products with weight matrices, and activations quantised for them
unpack/     weights of every block type opened for products, rows of embedding tables, rows interleaved in memory
attention/  rotary embedding, keys and values in their pages, attention over them
recurrent/  convolutions and scans: Mamba, gated delta nets, Kimi Delta Attention, RWKV
moe/        the choice of experts and their products
rowwise/    norms, activations, residuals; rows and columns picked, pooled or mixed
encode/     f32 rows quantised to block types
threads/    the walk over a plan, barriers, time stamps, the memory probe

The files beside the folders are shared by several of them. Arguments are those of the kernel's signature in ../ops; instructions
come from ../simd, which the functions call by name (`isa.fma_f32x8`) or write as IR (`isa.make`).
"""
