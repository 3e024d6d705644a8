"""Argument words of kernels of experts: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

SLOT_SCALE = Words("x x_stride weights weights_stride chosen chosen_stride out out_stride n slots count")
