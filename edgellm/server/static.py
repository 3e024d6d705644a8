"""The files of the page at /, which no other program's content gets into."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from edgellm.server.routing import Endpoint, Routes

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def files(folder: Path = FOLDER) -> dict[str, Path]:
    """Paths of requests, and the files that answer them: those that are in the folder now, and no others."""
    found = {f"/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {**found, "/": found[f"/{INDEX}"]}


def routes(folder: Path = FOLDER) -> Routes:
    """Methods, paths and endpoints."""
    return [("GET", path, _endpoint(file)) for path, file in files(folder).items()]


def _endpoint(file: Path) -> Endpoint:
    body, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = "text/javascript" if file.suffix == ".js" else kind  # some systems have another one
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    async def answer(request: Request) -> Response:
        headers = {**HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer
