"""Llama 1-3.3, Mistral and the many models of that shape."""
from ._family import INNER, Family

FAMILIES = (
    Family("llama", ("llama",), INNER, paired_rows=True),
    Family("llama", ("mistral",), INNER, paired_rows=True, slides=True),
)
