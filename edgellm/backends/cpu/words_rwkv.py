"""Argument words of RWKV's kernels: apart from words.py, for whatever changes there has all kernels compiled again."""
from __future__ import annotations

from edgellm.backends.cpu.words import Words

TOKEN_SHIFT = Words("x x_stride out out_stride mix n parts targets state_at segments")
# `weights`: k_k, k_a, r_k, then weight and bias of the norm, one row each; `first` and `gate` are 0 in the first layer.
WKV7 = Words("r r_stride w w_stride k k_stride v v_stride a a_stride first first_stride gate gate_stride out out_stride weights "
             "heads dim eps targets state_at segments scratch")
