"""/api/embed and /api/embeddings: vectors of texts."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.server.bodies import read
from edgellm.server.models import Models
from edgellm.server.ollama.requests import EmbedBody
from edgellm.server.streaming import unless_gone


class OllamaEmbeddings:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def embed(self, request: Request) -> Response:
        """Vectors of one text or several."""
        body = await read(request, EmbedBody)
        return await unless_gone(request.receive, self._embed(body))

    async def embed_one(self, request: Request) -> Response:
        """The vector of one text, as older clients ask for it."""
        body = await read(request, EmbedBody)
        body.input = [body.prompt or ""] if body.prompt is not None else body.input
        found = await unless_gone(request.receive, self._vectors(body))
        return JSONResponse({"embedding": found[0][0] if found[0] else []})

    async def _embed(self, body: EmbedBody) -> Response:
        since = time.perf_counter()
        vectors, tokens, name = await self._vectors(body)
        duration = int(1e9 * (time.perf_counter() - since))
        return JSONResponse(
            {"model": name, "embeddings": vectors, "total_duration": duration, "load_duration": 0, "prompt_eval_count": tokens}
        )

    async def _vectors(self, body: EmbedBody) -> tuple[list[list[float]], int, str]:
        texts = [body.input] if isinstance(body.input, str) else body.input
        async with self._models.use(body.wanted, body.kept) as loaded:
            vectors, counts = await loaded.model.aembed(
                texts, dimensions=body.dimensions, truncate=body.truncate, return_counts=True
            )
            return vectors.tolist(), int(counts.sum()), loaded.name
