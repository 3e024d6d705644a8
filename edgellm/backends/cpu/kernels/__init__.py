"""Compute kernels, one file per algorithm: `build(variant, isa)` returns the function that the JIT compiles."""
