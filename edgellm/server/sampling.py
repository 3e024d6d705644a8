"""The sampling options of a request's body, which OpenAI's, llama-server's and Ollama's API share."""

from __future__ import annotations

from typing import Any  # Any: options of the library

from pydantic import AliasChoices, BaseModel, Field


class SamplingBody(BaseModel):
    """Named as in the library; `dry_penalty_last_n` is llama-server's name, `repetition_penalty` vLLM's."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    repeat_penalty: float | None = Field(None, validation_alias=AliasChoices("repeat_penalty", "repetition_penalty"))
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_last_n: int | None = Field(None, validation_alias=AliasChoices("dry_last_n", "dry_penalty_last_n"))
    dry_sequence_breakers: tuple[str, ...] | None = None
    min_keep: int | None = None
    ignore_eos: bool | None = None
    seed: int | None = None

    @property
    def sampled(self) -> dict[str, Any]:
        """Those that the request sets; a negative seed is none."""
        given = {name: getattr(self, name) for name in SamplingBody.model_fields}
        return {name: value for name, value in given.items() if value is not None and (name != "seed" or value >= 0)}
