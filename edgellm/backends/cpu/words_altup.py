"""Argument words of the kernels of Gemma 3n: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

MIX = Words("base base_stride x x_stride coefficients coefficients_stride out out_stride parts added n offset first count")
RESCALE = Words("x x_stride like like_stride n_like out out_stride n groups floor count")
SPARSE_RELU = Words("x x_stride out out_stride n deviations count")
