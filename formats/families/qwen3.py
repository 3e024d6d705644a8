"""Qwen3, dense."""
from ._family import INNER, Family

FAMILIES = (Family("qwen3", ("qwen3",), INNER),)
