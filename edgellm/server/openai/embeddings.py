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
MOST_INTEGER = 32760.0  # of values that are divided by the largest
NATIVE = "/embedding"  # llama-server's
Inputs = str | list[str] | list[int] | list[list[int]]
Vectors = npt.NDArray[np.float32]


class EmbeddingBody(BaseModel):
    """`content`: llama-server's name of `input`, whose answers have its own shape; so have those of /embedding."""

    model: str | None = None
    input: Inputs | None = None
    content: Inputs | None = None
    embd_normalize: int | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class Embeddings:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        body = await read(request, EmbeddingBody)
        return await unless_gone(request.receive, self._embed(body, native=body.input is None or request.url.path == NATIVE))

    async def _embed(self, body: EmbeddingBody, *, native: bool) -> Response:
        async with self._models.use(body.model) as loaded:
            texts: Any = _inputs(body.content if body.input is None else body.input)
            usual = body.embd_normalize is None
            vectors, counts = await loaded.model.aembed(texts, dimensions=body.dimensions, normalize=usual, return_counts=True)
            vectors = vectors if usual else _normalized(vectors, body.embd_normalize or 0)
            if native:
                return JSONResponse([{"index": k, "embedding": [row.tolist()]} for k, row in enumerate(vectors)])
            tokens = int(counts.sum())
            data = [{"object": "embedding", "index": k, "embedding": _written(row, body)} for k, row in enumerate(vectors)]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return JSONResponse({"object": "list", "data": data, "model": loaded.name, "usage": usage})


def _normalized(vectors: Vectors, norm: int) -> Vectors:
    """Vectors divided by a norm of llama-server's numbers: below 0 none, 0 the largest value (as 32760), else that p-norm."""
    if norm < 0:
        return vectors
    sizes = np.abs(vectors.astype(np.float64))
    lengths = sizes.max(axis=1) / MOST_INTEGER if norm == 0 else (sizes**norm).sum(axis=1) ** (1 / norm)
    divided: Vectors = np.divide(vectors, np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
    return divided


def _inputs(given: Inputs | None) -> list[str | list[int]]:
    """One or several texts, or token ids. Raises Problem."""
    if given is None:
        raise Problem(400, "input is missing; give a text, or a list of texts.", code="invalid_value")
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
