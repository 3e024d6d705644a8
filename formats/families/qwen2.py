"""Qwen2, Qwen2.5 and their distillations; no released one uses the sliding window that its configuration mentions."""
from ._family import INNER, Family

FAMILIES = (Family("qwen2", ("qwen2",), INNER),)
