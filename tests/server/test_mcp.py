"""Tools of MCP servers: read from files of two formats, run for the page alone, and only when they were allowed."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_commands import pipe_in
from scripted import scripted
from serving import Running

from edgellm import OptionError
from edgellm.cli import app
from edgellm.server.mcp import McpServer, McpTools, read_mcp_file

HELPER = Path(__file__).resolve().parents[1] / "helpers" / "mcp_server.py"
PAGE = {"sec-fetch-site": "same-origin"}
CALL = '<tool_call>\n{"name": "price", "arguments": {"item": "tea"}}\n</tool_call>'


def script(conversation: str) -> str:
    asked = conversation.rpartition("<|im_start|>")[2]
    return "It costs five euros." if asked.startswith("tool\n") else CALL if "price" in asked else "Hello."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    shop = McpServer("shop", sys.executable, (str(HELPER),), {"PRICE": "5"}, allowed=frozenset({"fail"}))
    broken = McpServer("broken", "/nowhere/no-such-command")
    with scripted(tmp_path_factory.mktemp("scripted") / "toy.gguf", script, mcp=(shop, broken)) as started:
        yield started


def written(folder: Path, value: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_files_of_both_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "secret")
    claude = {"mcpServers": {"a": {"command": "npx", "args": ["-y", "x", 3], "env": {"KEY": "${SHOP_KEY}"}, "autoApprove": ["f"]}}}
    code = {"servers": {"b": {"type": "http", "url": "http://localhost:9/mcp", "headers": {"X": "Bearer ${env:SHOP_KEY}"}}}}
    (a,), (b,) = read_mcp_file(written(tmp_path, claude)), read_mcp_file(written(tmp_path, code))
    assert (a.command, a.arguments, a.environment, a.allowed) == ("npx", ("-y", "x", "3"), {"KEY": "secret"}, {"f"})
    assert (b.url, b.headers, b.command) == ("http://localhost:9/mcp", {"X": "Bearer secret"}, "")
    assert read_mcp_file(written(tmp_path, {"mcpServers": {"a": {"command": "x", "disabled": True}}})) == ()
    for wrong in ("{", "[]", {}, {"servers": {"b": 3}}, {"servers": {"b": {}}}, {"servers": {"b": {"command": "x", "args": [{}]}}},
                  {"servers": {"b": {"command": "${input:key}"}}}):  # fmt: skip
        with pytest.raises(OptionError, match="--mcp"):
            read_mcp_file(written(tmp_path, wrong))
    with pytest.raises(OptionError, match="--mcp"):
        read_mcp_file(tmp_path / "none.json")


def test_calls_need_the_page_and_a_yes(server: Running) -> None:
    status, found = server.ask("/page/tools", headers=PAGE)
    assert status == 200 and {each["function"]["name"]: each["allowed"] for each in found["tools"]} == {
        "price": False,
        "fail": True,
    }
    assert list(found["failed"]) == ["broken"]
    price = {"name": "price", "arguments": {"item": "tea"}}
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"}):
        assert server.ask("/page/tools", headers=headers)[0] == 403
        assert server.ask("/page/tools/call", {**price, "confirmed": True}, headers=headers)[0] == 403
    assert server.ask("/page/tools/call", price, headers=PAGE)[0] == 403
    said = server.ask("/page/tools/call", {**price, "confirmed": True}, headers=PAGE)
    assert said == (200, {"content": "tea costs 5 euros", "failed": False})
    status, failed = server.ask("/page/tools/call", {"name": "fail"}, headers=PAGE)  # allowed by name
    assert status == 200 and failed["failed"] and "fail" in failed["content"]
    wrong = server.ask("/page/tools/call", {"name": "price", "arguments": {"it": 3}, "confirmed": True}, headers=PAGE)
    assert wrong[0] == 200 and wrong[1]["failed"]
    assert server.ask("/page/tools/call", {"name": "other", "confirmed": True}, headers=PAGE)[0] == 404


def test_requests_from_outside_get_no_tools(server: Running) -> None:
    asked = {"messages": [{"role": "user", "content": "price?"}], "max_tokens": 100}
    message = server.ask("/v1/chat/completions", asked)[1]["choices"][0]["message"]
    assert "tool_calls" not in message


def test_a_server_over_http(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(HELPER.parent)!r})\n"
        "from mcp_server import server\n"
        "server.run('streamable-http', port=int(sys.argv[1]))"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with subprocess.Popen([sys.executable, "-c", code, port], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:

            async def used() -> tuple[str, bool]:
                for _ in range(60):
                    tools = McpTools((McpServer("shop", url=f"http://127.0.0.1:{port}/mcp"),))
                    await tools.start()
                    if tools.tools:
                        break
                    time.sleep(0.25)
                try:
                    return await tools.call("price", {"item": "tea"})
                finally:
                    await tools.close()

            assert asyncio.run(used()) == ("tea costs 3 euros", False)
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("allowed", "said"), [(True, "The shop said: tea costs 3 euros"), (False, "The shop said: The user did not")]
)
def test_a_chat_in_the_terminal(
    tmp_path: Path, allowed: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over a pipe nobody can be asked: a call runs where the file allows it by name."""
    given = {"command": sys.executable, "args": [str(HELPER)], "alwaysAllow": ["price"] if allowed else []}
    path = written(tmp_path, {"mcpServers": {"shop": given}})

    def talk(conversation: str) -> str:
        asked = conversation.rpartition("<|im_start|>")[2]
        return f"The shop said: {asked[5:25]}" if asked.startswith("tool\n") else CALL

    with scripted(tmp_path / "toy.gguf", talk):  # its model is the one that the chat opens
        pipe_in(monkeypatch, b"price?\n")
        assert app.run(["chat", str(tmp_path / "toy.gguf"), "--backend", "cpu", "--mcp", str(path), "--context", "2048"]) == 0
    assert said in capsys.readouterr().out
