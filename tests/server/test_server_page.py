"""The page's files, and what a browser lets them do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving import Running
from starlette.requests import Request

from edgellm.server import static


def test_what_is_at_the_root(server: Running) -> None:
    status, headers, body = server.exchange("/")
    assert status == 200 and body and "default-src 'none'" in headers["content-security-policy"]
    assert server.exchange("/", method="HEAD")[0] == 200


def test_files_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "js" / "main.js").write_text("export {}")
    found = {path: endpoint for _, path, endpoint in static.routes(tmp_path)}
    assert sorted(found) == ["/", "/index.html", "/js/main.js"]

    def ask(path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        response = asyncio.run(found[path](Request({"type": "http", "method": "GET", "path": path, "headers": given})))  # type: ignore[arg-type]
        return response.status_code, dict(response.headers), bytes(response.body)

    status, headers, body = ask("/js/main.js")
    assert status == 200 and body == b"export {}" and headers["content-type"].startswith("text/javascript")
    assert "unsafe" not in headers["content-security-policy"] and headers["cross-origin-resource-policy"] == "same-origin"
    assert ask("/js/main.js", {"if-none-match": headers["etag"]})[0] == 304
    assert ask("/")[2] == b"<!doctype html>"


def test_no_other_file(server: Running) -> None:
    for path in ("/../app.py", "/js/../../app.py", "/%2e%2e/app.py", "/app.py", "//etc/passwd", "/static.py", "/page/index.html"):
        assert server.exchange(path)[0] == 404
