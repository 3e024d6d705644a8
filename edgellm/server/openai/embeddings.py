"""/v1/embeddings: vectors of texts or token ids."""

from __future__ import annotations

import base64
from typing import Any, Literal  # Any: JSON

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.server.bodies import read
from edgellm.server.models import Models
from edgellm.server.problems import Problem
from edgellm.server.streaming import unless_gone

MOST_INPUTS = 2048


class EmbeddingBody(BaseModel):
    model: str | None = None
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class Embeddings:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        body = await read(request, EmbeddingBody)
        return await unless_gone(request.receive, self._embed(body))

    async def _embed(self, body: EmbeddingBody) -> Response:
        async with self._models.use(body.model) as loaded:
            texts: Any = _inputs(body.input)
            vectors, counts = await loaded.model.aembed(texts, dimensions=body.dimensions, return_counts=True)
            tokens = int(counts.sum())
            data = [{"object": "embedding", "index": k, "embedding": _written(row, body)} for k, row in enumerate(vectors)]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return JSONResponse({"object": "list", "data": data, "model": loaded.name, "usage": usage})


def _inputs(given: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """One or several texts, or token ids. Raises Problem."""
    one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    found: list[Any] = [given] if one else list(given)
    if not 1 <= len(found) <= MOST_INPUTS:
        raise Problem(400, f"input has {len(found)} texts; give 1 to {MOST_INPUTS}.")
    return found


def _written(row: npt.NDArray[np.float32], body: EmbeddingBody) -> str | list[float]:
    if body.encoding_format == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    numbers: list[float] = row.tolist()
    return numbers
