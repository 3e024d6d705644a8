"""/v1/rerank: documents in the order in which they answer a query, in the shape of Jina and Cohere."""

from __future__ import annotations

from typing import Any  # Any: JSON

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.server.bodies import read
from edgellm.server.models import Models
from edgellm.server.streaming import unless_gone

MOST_DOCUMENTS = 1000


class Document(BaseModel):
    text: str


class RerankBody(BaseModel):
    model: str | None = None
    query: str
    documents: list[str | Document] = Field(max_length=MOST_DOCUMENTS)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool | None = None


class Rerank:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        body = await read(request, RerankBody)
        return await unless_gone(request.receive, self._ranked(body))

    async def _ranked(self, body: RerankBody) -> Response:
        texts = [each if isinstance(each, str) else each.text for each in body.documents]
        async with self._models.use(body.model) as loaded:
            model = loaded.model
            scores: list[float] = (await model.arerank(body.query, texts, truncate=True)).tolist()
            tokens = sum(len(model.tokenize(text)) for text in (body.query, *texts))
        order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order]
        if body.return_documents:
            results = [{**each, "document": {"text": texts[each["index"]]}} for each in results]
        return JSONResponse({"model": loaded.name, "results": results, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
