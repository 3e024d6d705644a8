"""Bodies of llama-server's own API, and the prompts that they ask for."""

from __future__ import annotations

from typing import Any  # Any: JSON

from pydantic import BaseModel, Field

from edgellm import Model
from edgellm.server.openai.completions import MOST_PROMPTS
from edgellm.server.openai.requests import MOST_CHOICES, Sampled
from edgellm.server.problems import Problem

Pairs = list[tuple[int | str, float | bool]]  # tokens (their ids or texts of them), and what is added to their logits
Mixed = str | list[int | str]  # texts and token ids


class TokenizeBody(BaseModel):
    """`prompt` and `add_special_tokens` are vLLM's names, whose default is another."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    add_special: bool = False
    add_special_tokens: bool = True
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(BaseModel):
    model: str | None = None
    tokens: list[int]


class ExtraFile(BaseModel):
    filename: str = "tmp"
    text: str


class TextPrompt(BaseModel):
    """A prompt as an object."""

    prompt_string: str
    multimodal_data: list[str] | None = None


class Written(Sampled):
    """A request for text without a template; a negative `n_predict` sets no limit."""

    n_predict: int | None = None
    n_probs: int | None = Field(None, ge=0, le=20)
    n_cmpl: int | None = Field(None, ge=1, le=MOST_CHOICES)
    return_progress: bool | None = None
    t_max_predict_ms: float | None = None
    response_fields: list[str] | None = None

    @property
    def answers(self) -> int:
        """How many each prompt gets."""
        return self.n_cmpl or self.n or 1

    def writing(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `generate`. Raises Problem."""
        if self.n_predict is not None and self.max_tokens is None:
            self.max_tokens = self.n_predict
        options = self.sampling(model, default)
        return {**options, "logprobs": self.n_probs} if self.n_probs else options

    def prompts(self, model: Model) -> list[list[int]]:
        """Token ids of each prompt. Raises Problem, and what `tokenize` raises."""
        raise NotImplementedError


class TextBody(Written):
    prompt: TextPrompt | Mixed | list[TextPrompt | Mixed]

    def prompts(self, model: Model) -> list[list[int]]:
        given: Any = self.prompt
        texts = isinstance(given, list) and len(given) > 1 and all(isinstance(part, str) for part in given)
        several = texts or (isinstance(given, list) and any(isinstance(part, list | TextPrompt) for part in given))
        found = given if several else [given]
        if not 1 <= len(found) <= MOST_PROMPTS:
            raise Problem(400, f"prompt has {len(found)} prompts; give 1 to {MOST_PROMPTS}.", code="invalid_value")
        return [_ids(model, prompt) for prompt in found]


class InfillBody(Written):
    """A request for the text between two others; `prompt` follows the prefix, `input_extra` are other files."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    input_extra: list[ExtraFile] | None = None

    def prompts(self, model: Model) -> list[list[int]]:
        files = [(each.filename, each.text) for each in self.input_extra or ()]
        limit = None if self.n_predict is None or self.n_predict < 0 else self.n_predict
        return [model.fill_in_prompt(self.input_prefix + self.prompt, self.input_suffix, files=files, max_tokens=limit)]


def _ids(model: Model, prompt: TextPrompt | Mixed) -> list[int]:
    """Token ids of a prompt: of its texts, in which names of control tokens are these tokens, and those among them."""
    if isinstance(prompt, TextPrompt):
        if prompt.multimodal_data:
            raise Problem(400, "multimodal_data is not supported; send images and audio to /v1/chat/completions.")
        prompt = prompt.prompt_string
    found = list[int]()
    for part in [prompt] if isinstance(prompt, str) else prompt:
        found += model.tokenize(part, add_special=not found, parse_special=True) if isinstance(part, str) else [part]
    return found
