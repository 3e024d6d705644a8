"""The CPU back end: Numba-compiled kernels, walked as a flat plan by a few threads."""
