"""The models on this machine in Ollama's API: listed, described, fetched, removed and given second names."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import edgellm
from edgellm import EdgeError, ModelHeader
from edgellm.server.bodies import read
from edgellm.server.models import Models, Offered
from edgellm.server.ollama.requests import CopyBody, Named, PullBody, moment
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import NDJSON, Chunks, streamed, unless_gone

LISTED = 256  # headers that are kept


class Store:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings
        self._headers: dict[tuple[str, float], ModelHeader] = {}

    async def tags(self, request: Request) -> Response:
        """All models."""
        names = await self._models.names()
        return JSONResponse({"models": [await self._described(each) for each in names.values()]})

    async def running(self, request: Request) -> Response:
        """The models in memory."""
        found = []
        for loaded in self._models.loaded.values():
            left = None if loaded.expires is None else loaded.expires - time.monotonic()
            until = moment(time.time() + (left if left is not None else 10 * 365 * 86400))
            info = loaded.model.info
            size = {"size": info.file_bytes + info.kv_bytes, "size_vram": 0, "context_length": info.context}
            found.append({**await self._described(loaded.offered), **size, "expires_at": until})
        return JSONResponse({"models": found})

    async def show(self, request: Request) -> Response:
        """One model: its template, parameters, capabilities, and what its file says."""
        body = await read(request, Named)
        offered = await self._models.find(body.wanted)
        header = await self._header(offered)
        arch = header.architecture
        info: dict[str, Any] = {
            **header.metadata,
            "general.architecture": arch,
            "general.basename": header.metadata.get("general.basename", header.name),
            "general.parameter_count": header.parameters,
            f"{arch}.context_length": header.context_train,
        }
        loaded = self._models.loaded.get(offered.source)
        return JSONResponse(
            {
                "modelfile": f"FROM {offered.name}\n",
                "parameters": "\n".join(f"{name} {value}" for name, value in offered.sampling.items()),
                "template": header.template,
                "details": _details(header),
                "model_info": {key: value for key, value in info.items() if value == value},  # no NaN
                "capabilities": capabilities(header),
                "modified_at": moment(offered.modified),
                **({"context_length": loaded.model.context} if loaded else {}),
            }
        )

    async def pull(self, request: Request) -> Response:
        """Fetch a model; progress comes in lines."""
        body = await read(request, PullBody)
        if not body.wanted:
            raise Problem(400, "model is missing; give the name of a model to fetch.")
        chunks = self._pulling(body.wanted)
        if body.stream is not False:
            return await streamed(request, chunks, NDJSON, lambda problem: _line({"error": problem.message}))

        async def whole() -> Response:
            async for _ in chunks:
                pass
            return JSONResponse({"status": "success"})

        return await unless_gone(request.receive, whole())

    async def _pulling(self, name: str) -> Chunks:
        progress: asyncio.Queue[tuple[str, int, int | None] | None] = asyncio.Queue()
        loop, told = asyncio.get_running_loop(), 0.0

        def report(file: str, done: int, total: int | None) -> None:
            nonlocal told
            if done == total or time.monotonic() - told > 0.2:
                told = time.monotonic()
                loop.call_soon_threadsafe(progress.put_nowait, (file, done, total))

        task = asyncio.create_task(asyncio.to_thread(edgellm.pull, name, progress=report))
        task.add_done_callback(lambda _: progress.put_nowait(None))
        if task.done() or await _failed_soon(task):
            await task
        yield _line({"status": "pulling manifest"})
        while (item := await progress.get()) is not None:
            file, done, total = item
            digest = "sha256:" + hashlib.sha256(file.encode()).hexdigest()
            yield _line({"status": f"pulling {file}", "digest": digest, "total": total, "completed": done})
        await task
        self._models.forget_names()
        yield _line({"status": "verifying sha256 digest"})
        yield _line({"status": "success"})

    async def delete(self, request: Request) -> Response:
        """Remove a model that edgellm fetched, or a second name; models of other programs are theirs."""
        body = await read(request, Named)
        if self._models.forget_alias(body.wanted or ""):
            return Response(status_code=200)
        offered = await self._models.find(body.wanted or " ")
        if not body.wanted or offered.installed is None:
            raise Problem(404, "the model is not on this machine.", code="model_not_found")
        await self._models.unload(offered)
        await asyncio.to_thread(edgellm.remove, offered.installed.name)
        self._models.forget_names()
        return Response(status_code=200)

    async def copy(self, request: Request) -> Response:
        """A second name for a model, until the server stops; edgellm import gives one for good."""
        body = await read(request, CopyBody)
        await self._models.alias(body.destination, body.source)
        return Response(status_code=200)

    async def _described(self, offered: Offered) -> dict[str, Any]:
        try:
            header = await self._header(offered)
            details = _details(header)
        except EdgeError:
            details = _details(None)
        digest = (offered.installed.sha256 if offered.installed else None) or hashlib.sha256(offered.source.encode()).hexdigest()
        return {
            "name": offered.name,
            "model": offered.name,
            "modified_at": moment(offered.modified),
            "size": offered.size,
            "digest": digest,
            "details": details,
        }

    async def _header(self, offered: Offered) -> ModelHeader:
        """The header, read again where the file has changed."""
        key = offered.source, offered.modified
        if key not in self._headers:
            header = await asyncio.to_thread(edgellm.read_header, offered.source)
            if len(self._headers) >= LISTED:
                self._headers.clear()
            self._headers[key] = header
        return self._headers[key]


async def _failed_soon(task: asyncio.Task[Any]) -> bool:
    """True if it fails at once, in time for a status."""
    await asyncio.wait((task,), timeout=0.3)
    return task.done() and task.exception() is not None


def _details(header: ModelHeader | None) -> dict[str, Any]:
    family = header.architecture if header else ""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": _rounded(header.parameters) if header else "",
        "quantization_level": header.type if header else "",
    }


def capabilities(header: ModelHeader) -> list[str]:
    """The capabilities of a model that clients ask for."""
    if header.embedding:
        return ["embedding"]
    found = {"completion": True, "vision": header.vision, "audio": header.audio, "tools": header.tools}
    found |= {"insert": header.fill_in, "thinking": header.thinking != "no"}
    return [name for name, has in found.items() if has]


def _rounded(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.2f}M"


def _line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, separators=(",", ":")) + "\n").encode()
