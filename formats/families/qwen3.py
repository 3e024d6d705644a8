"""Qwen3, dense."""
from ._family import INNER, Family
from .qwen2 import windows

FAMILIES = (Family("qwen3", ("qwen3",), INNER, refuses=windows),)
