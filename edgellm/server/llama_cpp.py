"""llama-server's small endpoints, which editors' plugins use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any  # Any: JSON

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import AsyncStream, Generation, Model, __version__
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.openai import problem_body
from edgellm.server.openai.chat import sse, timings, token_logprobs
from edgellm.server.openai.requests import Message, Sampled, conversation_of
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings
from edgellm.server.streaming import COMMENT, SSE, Chunks, pinged, streamed, unless_gone

PROBABILITIES = "completion_probabilities"
Begin = Callable[[Model, dict[str, Any]], Awaitable[AsyncStream]]  # starts an answer, with options of the library


class TokenizeBody(BaseModel):
    model: str | None = None
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(BaseModel):
    model: str | None = None
    tokens: list[int]


class TemplateBody(BaseModel):
    model: str | None = None
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


class ExtraFile(BaseModel):
    filename: str = "tmp"
    text: str


class Written(Sampled):
    """A request for text without a template; a negative `n_predict` sets no limit."""

    n_predict: int | None = None
    n_probs: int | None = Field(None, ge=0, le=20)

    def writing(self, default: int | None) -> dict[str, Any]:
        """Options of `generate`."""
        if self.n_predict is not None and self.max_tokens is None:
            self.max_tokens = self.n_predict
        options = self.sampling(default)
        return {**options, "logprobs": self.n_probs} if self.n_probs else options


class TextBody(Written):
    prompt: str | list[int | str]

    def ids(self, model: Model) -> list[int]:
        """Token ids of the prompt: of its texts, in which names of control tokens are these tokens, and those among them.

        Raises Problem for several prompts, and what `tokenize` raises.
        """
        parts, found = [self.prompt] if isinstance(self.prompt, str) else self.prompt, list[int]()
        if len(parts) > 1 and all(isinstance(part, str) for part in parts):
            raise Problem(400, f"prompt has {len(parts)} prompts; send each in a request of its own.", code="invalid_value")
        for part in parts:
            found += model.tokenize(part, add_special=not found, parse_special=True) if isinstance(part, str) else [part]
        return found


class InfillBody(Written):
    """A request for the text between two others; `prompt` follows the prefix, `input_extra` are other files."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    input_extra: list[ExtraFile] | None = None


class LlamaCpp:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text, with their bytes where they are wanted."""
        body = await read(request, TokenizeBody)
        async with self._models.use(body.model) as loaded:
            model, special = loaded.model, body.add_special
            ids = await asyncio.to_thread(model.tokenize, body.content, add_special=special, parse_special=body.parse_special)
            return JSONResponse({"tokens": [_piece(loaded, token) for token in ids] if body.with_pieces else ids})

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids."""
        body = await read(request, DetokenizeBody)
        async with self._models.use(body.model) as loaded:
            return JSONResponse({"content": loaded.model.detokenize(body.tokens, skip_special=False)})

    async def apply_template(self, request: Request) -> Response:
        """The prompt that a conversation becomes."""
        body = await read(request, TemplateBody)
        async with self._models.use(body.model) as loaded:
            messages = conversation_of(body.messages)
            return JSONResponse({"prompt": await asyncio.to_thread(loaded.model.apply_template, messages, tools=body.tools)})

    async def infill(self, request: Request) -> Response:
        """The text between two others."""
        body = await read(request, InfillBody)

        async def begin(model: Model, options: dict[str, Any]) -> AsyncStream:
            files = [(each.filename, each.text) for each in body.input_extra or ()]
            prefix = body.input_prefix + body.prompt
            answer: AsyncStream = await model.ainfill(prefix, body.input_suffix, stream=True, files=files, **options)
            return answer

        return await self._answer(request, body, begin)

    async def completion(self, request: Request) -> Response:
        """The text that continues a prompt, in which names of control tokens are these tokens."""
        body = await read(request, TextBody)

        async def begin(model: Model, options: dict[str, Any]) -> AsyncStream:
            return model.astream(await asyncio.to_thread(body.ids, model), **options)

        return await self._answer(request, body, begin)

    async def _answer(self, request: Request, body: Written, begin: Begin) -> Response:
        chunks = self._writing(request, body, begin)
        if body.stream:
            return await streamed(request, chunks, SSE, lambda problem: sse(problem_body(problem)))

        async def whole() -> Response:
            values = [json.loads(part.removeprefix(b"data: ")) async for part in chunks if part.startswith(b"data: ")]
            probabilities = [each for value in values for each in value.get(PROBABILITIES, ())]
            more = {PROBABILITIES: probabilities} if probabilities else {}
            return JSONResponse({**values[-1], "content": "".join(value["content"] for value in values), **more})

        return await unless_gone(request.receive, whole())

    async def _writing(self, request: Request, body: Written, begin: Begin) -> Chunks:
        async with self._models.use(body.model) as loaded:
            answer = await begin(loaded.model, {**defaults(request, loaded), **body.writing(self._settings.max_tokens)})
            async for event in pinged(answer):
                if event is None:
                    yield COMMENT
                elif event.kind == "text":
                    found = [{"id": each.token_id, **token_logprobs(loaded.model, each)} for each in event.logprobs]
                    yield sse({"content": event.text, "stop": False, **({PROBABILITIES: found} if found else {})})
                elif event.kind == "done" and event.result is not None:
                    note(request, loaded, event.result)
                    ends = {"stop": True, "model": loaded.name, "tokens": list(event.result.token_ids), **_ending(event.result)}
                    yield sse({"content": "", **ends})

    async def slots(self, request: Request) -> Response:
        """The models in memory: how many answers each writes, and how many wait."""
        found = []
        for loaded in self._models.loaded.values():
            stats = loaded.model.load_stats()
            slots = [
                {"id": k, "model": loaded.name, "n_ctx": loaded.model.context, "is_processing": k < stats.running}
                for k in range(stats.parallel)
            ]
            found += slots
        return JSONResponse(found)

    async def props(self, request: Request) -> Response:
        """The model that answers requests which name none."""
        async with self._models.use(None) as loaded:
            model = loaded.model
            return JSONResponse(
                {
                    "default_generation_settings": {"n_ctx": model.context},
                    "total_slots": model.load_stats().parallel,
                    "model_alias": loaded.name,
                    "chat_template": model.template.source if model.has_template else "",
                    "modalities": {"vision": bool(model.info.vision), "audio": bool(model.info.audio)},
                    "build_info": f"edgellm {__version__}",
                }
            )


def _ending(answer: Generation) -> dict[str, Any]:
    """Why an answer ended, and its counts."""
    stats, stop = answer.stats, answer.stop_text
    return {
        "stop_type": "word" if stop else {"eog": "eos", "stop": "word"}.get(answer.stop_reason, "limit"),
        "stopping_word": stop or "",
        "tokens_predicted": stats.generated_tokens,
        "tokens_evaluated": stats.prompt_tokens,
        "tokens_cached": stats.cached_tokens,
        "truncated": stats.evicted_tokens > 0,
        "timings": timings(stats),
    }


def _piece(loaded: Loaded, token: int) -> dict[str, Any]:
    piece = loaded.model.tokenizer.piece(token)
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    llama = LlamaCpp(models, settings)
    return [
        ("POST", "/tokenize", llama.tokenize),
        ("POST", "/detokenize", llama.detokenize),
        ("POST", "/apply-template", llama.apply_template),
        ("POST", "/infill", llama.infill),
        ("POST", "/completion", llama.completion),
        ("GET", "/slots", llama.slots),
        ("GET", "/props", llama.props),
    ]
