"""Argument words of RWKV's kernels: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

TOKEN_SHIFT = Words("x x_stride more more_stride out out_stride mix n parts targets state_at segments")
# `first`: u by head, or 0 for the form without it.
WKV6 = Words(
    "r r_stride w w_stride k k_stride v v_stride first out out_stride heads kv_heads dim targets state_at segments scratch"
)
# `weights`: k_k, k_a, r_k, then weight and bias of the norm, one row each; `normal`: whether there is one; `first` and `gate` are 0
# in the first layer.
WKV7 = Words(
    "r r_stride w w_stride k k_stride v v_stride a a_stride first first_stride gate gate_stride out out_stride weights "
    "normal heads dim eps targets state_at segments scratch"
)
