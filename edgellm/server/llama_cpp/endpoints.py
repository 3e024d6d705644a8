"""llama-server's small endpoints: tokens, templates, adapters, and what the server is doing."""

from __future__ import annotations

import asyncio
from typing import Any  # Any: JSON

from pydantic import RootModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import Model, __version__
from edgellm.server.answers import PROMPTING
from edgellm.server.bodies import read
from edgellm.server.llama_cpp.completions import generation_settings
from edgellm.server.llama_cpp.requests import DetokenizeBody, TokenizeBody
from edgellm.server.models import Loaded, Models
from edgellm.server.openai.requests import AskedAdapter, ChatBody, adapters_of
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings


class LlamaCpp:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text, with their bytes where they are wanted."""
        body = await read(request, TokenizeBody)
        text, special = (body.content, body.add_special) if body.content is not None else (body.prompt, body.add_special_tokens)
        if text is None:
            raise Problem(400, "content is missing; give a text.", code="invalid_value")
        async with self._models.use(body.model) as loaded:
            model = loaded.model
            ids = await asyncio.to_thread(model.tokenize, text, add_special=special, parse_special=body.parse_special)
            tokens = [_piece(model, token) for token in ids] if body.with_pieces else ids
            return JSONResponse({"tokens": tokens, "count": len(ids), "max_model_len": model.context})

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids."""
        body = await read(request, DetokenizeBody)
        async with self._models.use(body.model) as loaded:
            text = loaded.model.detokenize(body.tokens, skip_special=False)
            return JSONResponse({"content": text, "prompt": text})

    async def tokenizer_info(self, request: Request) -> Response:
        """The control tokens and the template of a model, as vLLM describes them."""
        async with self._models.use(request.query_params.get("model")) as loaded:
            return JSONResponse({**_template(loaded.model), "model_max_length": loaded.model.context})

    async def apply_template(self, request: Request) -> Response:
        """The prompt that a request for a chat completion becomes."""
        body = await read(request, ChatBody)
        async with self._models.use(body.model) as loaded:
            asked = body.options(loaded.model, None)
            prompting = {name: asked[name] for name in PROMPTING if name in asked}
            prompt = await asyncio.to_thread(loaded.model.apply_template, body.conversation, **prompting)
            return JSONResponse({"prompt": prompt})

    async def slots(self, request: Request) -> Response:
        """The models in memory: how many answers each writes, and how many wait. 503 for `fail_on_no_slot=1` where all are busy."""
        found = list[dict[str, Any]]()
        for loaded in self._models.loaded.values():
            stats, model = loaded.model.load_stats(), loaded.model
            found += [
                {"id": k, "model": loaded.name, "n_ctx": model.context, "is_processing": k < stats.running, "speculative": False}
                for k in range(stats.parallel)
            ]
        if request.query_params.get("fail_on_no_slot") and all(slot["is_processing"] for slot in found):
            raise Problem(503, "all slots are busy.", code="unavailable_error")
        return JSONResponse(found)

    async def props(self, request: Request) -> Response:
        """The model that answers requests which name none, or the one that the query names."""
        async with self._models.use(request.query_params.get("model")) as loaded:
            model, options = loaded.model, dict(loaded.offered.sampling)
            if self._settings.max_tokens is not None:
                options["max_tokens"] = self._settings.max_tokens
            settings = generation_settings(model, options, stream=True)
            return JSONResponse(
                {
                    "default_generation_settings": {"id": 0, "n_ctx": model.context, "params": settings},
                    "total_slots": model.load_stats().parallel,
                    "model_alias": loaded.name,
                    "model_path": str(model.path),
                    **_template(model),
                    "modalities": {"vision": bool(model.info.vision), "audio": bool(model.info.audio)},
                    "build_info": f"edgellm {__version__}",
                    "is_sleeping": False,
                }
            )

    async def adapters(self, request: Request) -> Response:
        """The LoRA adapters of a model, and the scales of requests that set none."""
        async with self._models.use(request.query_params.get("model")) as loaded:
            return JSONResponse(_listed(loaded))

    async def scale_adapters(self, request: Request) -> Response:
        """Other scales of a model's adapters, for all requests that set none, until it is unloaded."""
        body = await read(request, RootModel[list[AskedAdapter]])
        async with self._models.use(request.query_params.get("model")) as loaded:
            loaded.adapters = adapters_of(loaded.model, body.root)
            return JSONResponse({"success": True})


def _listed(loaded: Loaded) -> list[dict[str, Any]]:
    known = loaded.model.adapters
    scales = dict(known if loaded.adapters is None else loaded.adapters)
    return [{"id": k, "path": str(path), "scale": scales.get(path, 0.0)} for k, (path, _) in enumerate(known)]


def _template(model: Model) -> dict[str, str]:
    """The chat template, and the texts of the tokens that begin and end."""
    ends = {"bos_token": model.tokenizer.bos_id, "eos_token": model.tokenizer.eos_id}
    texts = {name: "" if token is None else model.tokenizer.piece(token).decode("utf-8", "replace") for name, token in ends.items()}
    return {"chat_template": model.template.source if model.has_template else "", **texts}


def _piece(model: Model, token: int) -> dict[str, Any]:
    piece = model.tokenizer.piece(token)
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}
