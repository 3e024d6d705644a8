"""Argument words of Kimi Delta Attention: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

DECAYS = Words("x x_stride out out_stride rates steps n count")  # rates to base 2
KDA = Words(
    "q q_stride k k_stride v v_stride decay decay_stride beta beta_stride out out_stride heads dim eps targets state_at segments"
)
