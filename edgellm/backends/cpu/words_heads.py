"""Argument words of the kernels of heads: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

HEAD_ROWS = Words("x x_stride k out row_bytes head_bytes heads count")
HEAD_PRODUCTS = Words("kernel weights row_bytes head_bytes n k x x_stride x_head_bytes out out_stride heads count scratch work")
HEAD_SCALE = Words("x x_stride factors factors_stride out out_stride heads n count")
# b_step: bytes from head to head, 0 where they share b.
JOIN = Words("a a_stride b b_stride out out_stride heads n_a n_b b_step count")
