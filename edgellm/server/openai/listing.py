"""/v1/models: what requests may name, with the fields of OpenAI's and of Anthropic's clients."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import Model
from edgellm.server.models import Models, Offered


class Listing:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def all(self, request: Request) -> Response:
        """All models, those that the server was started with first."""
        data = [self._described(each, request) for each in (await self._models.names()).values()]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
        return JSONResponse({"object": "list", "data": data, **ends})

    async def one(self, request: Request) -> Response:
        """One of them by its name."""
        return JSONResponse(self._described(await self._models.find(request.path_params["name"]), request))

    def _described(self, offered: Offered, request: Request) -> dict[str, Any]:
        loaded, installed = self._models.loaded.get(offered.source), offered.installed
        known = {} if loaded is None else _known(loaded.model)
        return {
            "id": offered.name,
            "object": "model",
            **({"type": "model"} if "anthropic-version" in request.headers else _mistral(known)),
            "lifecycle": "active",
            "display_name": offered.name,
            "created_at": datetime.fromtimestamp(offered.modified, UTC).isoformat(),
            "created": int(offered.modified),
            **({"max_input_tokens": known["n_ctx"], "max_model_len": known["n_ctx"]} if known else {}),
            "owned_by": installed.store if installed else "local",
            "meta": {"loaded": loaded is not None, "size": offered.size, **known},
        }


def _known(model: Model) -> dict[str, Any]:
    """Facts that need the model to be loaded."""
    info = model.info
    thinking = model.thinking if info.has_template else "no"
    tools = info.has_template and "tools" in model.template.source
    facts = {"n_ctx": model.context, "n_ctx_train": info.context_train, "thinking": thinking, "tools": tools}
    return {**facts, "vision": bool(info.vision)}


def _mistral(known: dict[str, Any]) -> dict[str, Any]:
    """The fields without which Mistral's client reads no model; of capabilities those that are known."""
    found = {"completion_chat": True}
    if known:
        found |= {"function_calling": known["tools"], "reasoning": known["thinking"] != "no", "vision": known["vision"]}
    return {"type": "base", "capabilities": found}
