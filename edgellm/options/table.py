"""All rows of the option table, by name."""

from __future__ import annotations

from edgellm.options.generation import GENERATION
from edgellm.options.loading import LOADING
from edgellm.options.option import Option
from edgellm.options.sampling import SAMPLING
from edgellm.options.serving import SERVING
from edgellm.options.tools import TOOLS

OF_OTHERS = {  # names in other programs and libraries that are no flag here
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "bad_words": "ban",
    "repetition_penalty": "repeat_penalty",
    "typical": "typical_p",
    "response_format": "schema",
    "json_schema": "schema",
    "reasoning_budget": "think_budget",
    "n_ctx": "context",
    "num_ctx": "context",
    "max_seq_len": "context",
    "n_threads": "threads",
    "num_threads": "threads",
    "n_parallel": "parallel",
    "lora_path": "adapters",
    "use_mmap": "mmap",
    "use_mlock": "mlock",
}
TABLE: dict[str, Option] = {row.name: row for row in (*SAMPLING, *GENERATION, *LOADING, *TOOLS, *SERVING)}


def known_as(name: str) -> Option | None:
    """The row that a name of another program means: a flag of ours, or one of `OF_OTHERS`; None for unknown ones."""
    if name in OF_OTHERS:
        return TABLE[OF_OTHERS[name]]
    return next((row for row in TABLE.values() if name.replace("_", "-") in row.typed_names), None)
