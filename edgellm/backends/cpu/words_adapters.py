"""Argument words of the adapters' kernel: apart from words.py, for whatever changes there has all kernels compiled again."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

LOW_RANK = Words("weights row_bytes n ranks low low_stride base base_stride out out_stride count")
