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

import psutil
import pytest
from fake_commands import pipe_in
from scripted import scripted
from serving import Running
from waiting import auntil

import edgellm
from edgellm import OptionError
from edgellm.cli import app
from edgellm.cli.chat.mcp_tools import chat_servers
from edgellm.server.mcp import McpResult, McpServer, McpTools, read_mcp_file

HELPER = Path(__file__).resolve().parents[1] / "helpers" / "mcp_server.py"
PAGE = {"sec-fetch-site": "same-origin"}
CALL = '<tool_call>\n{"name": "price", "arguments": {"item": "tea"}}\n</tool_call>'


def script(conversation: str) -> str:
    asked = conversation.rpartition("<|im_start|>")[2]
    return "It costs five euros." if asked.startswith("tool\n") else CALL if "price" in asked else "Hello."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    shop = McpServer("shop", sys.executable, (str(HELPER),), {"PRICE": "5"}, allowed=frozenset({"fail"}))
    broken = McpServer("broken", sys.executable, ("-c", "raise SystemExit('no key was given')"))
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
        "leave": False,
        "grow": False,
        "ask_back": False,
    }
    assert list(found["failed"]) == ["broken"] and "no key was given" in found["failed"]["broken"]
    price = {"name": "price", "arguments": {"item": "tea"}}
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"}):
        assert server.ask("/page/tools", headers=headers)[0] == 403
        assert server.ask("/page/tools/call", {**price, "confirmed": True}, headers=headers)[0] == 403
    assert server.ask("/page/tools/call", price, headers=PAGE)[0] == 403
    said = server.ask("/page/tools/call", {**price, "confirmed": True}, headers=PAGE)
    assert said == (200, {"content": "tea costs 5 euros", "images": [], "failed": False})
    status, failed = server.ask("/page/tools/call", {"name": "fail"}, headers=PAGE)  # allowed by name
    assert status == 200 and failed["failed"] and "fail" in failed["content"]
    wrong = server.ask("/page/tools/call", {"name": "price", "arguments": {"it": 3}, "confirmed": True}, headers=PAGE)
    assert wrong[0] == 200 and wrong[1]["failed"]
    assert server.ask("/page/tools/call", {"name": "other", "confirmed": True}, headers=PAGE)[0] == 404
    assert server.ask("/page/resource", {"name": "shop:hours"}, headers=PAGE) == (200, {"content": "open from nine to five"})
    order = {"name": "shop:order", "arguments": {"item": "tea"}}
    assert server.ask("/page/prompt", order, headers=PAGE) == (200, {"content": "I take 1 of tea, price?"})
    for path, body in (("/page/resource", {"name": "x"}), ("/page/prompt", {"name": "shop:order"})):
        assert server.ask(path, body, headers=PAGE)[0] == 400 and server.ask(path, body)[0] == 403


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

            async def used() -> McpResult:
                for _ in range(240):
                    tools = McpTools((McpServer("shop", url=f"http://127.0.0.1:{port}/mcp"),))
                    await tools.start()
                    if tools.tools:
                        break
                    time.sleep(0.25)
                try:
                    return await tools.call("price", {"item": "tea"})
                finally:
                    await tools.close()

            assert asyncio.run(used()) == McpResult("tea costs 3 euros", False)
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


def test_tools_are_for_models_that_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        scripted(tmp_path / "toy.gguf", script) as server,
        chat_servers((McpServer("shop", sys.executable, (str(HELPER),)),)) as shop,
    ):
        assert shop.options_for(server.models()[0])["tools"]
        with edgellm.load("guide") as model:
            assert shop.options_for(model) == shop.options_for(model) == {}
    assert capsys.readouterr().err.count("doesn't support tools") == 1


def test_a_server_that_changes_and_ends_is_followed() -> None:
    async def used() -> None:
        tools = McpTools((McpServer("shop", sys.executable, (str(HELPER),)),))
        await tools.start()
        try:
            assert await tools.call("grow", {}) == McpResult("taller\n(image/png)", False, ("data:image/png;base64,cG5n",))
            await auntil(lambda: "grown" in tools.tools)
            assert await tools.read("shop:hours") == "open from nine to five"
            assert await tools.fill("shop:order", {"item": "tea"}) == "I take 1 of tea, price?"
            for work in (tools.fill("shop:order", {}), tools.fill("x", {}), tools.read("x")):
                with pytest.raises(OptionError, match=r"needs item|no MCP server"):
                    await work
            for how, asked in (("user", "elicitation"), ("model", "sampling")):  # which this program does not offer
                result = await tools.call("ask_back", {"how": how})
                assert result.failed and asked in result.text
            result = await tools.call("leave", {})
            assert result.failed and "ended" in result.text
            await auntil(lambda: "price" in tools.tools and "grown" not in tools.tools)
            assert await tools.call("price", {"item": "tea"}) == McpResult("tea costs 3 euros", False)
        finally:
            await tools.close()

    asyncio.run(used())


def test_commands_that_go_on_are_ended(tmp_path: Path) -> None:
    """One that is connected and one that has said nothing yet: both ignore that their input ends."""
    ids = [tmp_path / name for name in ("connected", "silent")]
    begin = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); "
    talk = f"sys.path.insert(0, {str(HELPER.parent)!r}); from mcp_server import server; server.run('stdio'); "
    codes = (begin + talk + "time.sleep(600)", begin + "time.sleep(600)")
    servers = [McpServer(path.name, sys.executable, ("-c", code, str(path))) for path, code in zip(ids, codes, strict=True)]

    async def used() -> None:
        tools = McpTools(tuple(servers))
        start = asyncio.create_task(tools.start())
        await auntil(lambda: "price" in tools.tools and all(path.exists() and path.read_text() for path in ids))
        await tools.close()
        await start

    asyncio.run(used())
    for path in ids:
        assert not psutil.pid_exists(int(path.read_text()))


def test_resources_and_prompts_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {"mcpServers": {"shop": {"command": sys.executable, "args": [str(HELPER)], "alwaysAllow": ["price"]}}})

    def talk(conversation: str) -> str:
        asked = conversation.rpartition("<|im_start|>")[2]
        return "Nine to five." if "shop:hours" in asked else CALL if "I take 2 of tea" in asked else f"Said: {asked[5:25]}"

    with scripted(tmp_path / "toy.gguf", talk):
        pipe_in(monkeypatch, b"/mcp\n/mcp shop:hours\nWhen?\n/mcp shop:order item=tea count=2\n/mcp shop:order\n")
        code = app.run(["chat", str(tmp_path / "toy.gguf"), "--backend", "cpu", "--mcp", str(path), "--context", "2048"])
    output = capsys.readouterr()
    assert "Nine to five." in output.out and "Said: tea costs 3 euros" in output.out
    assert "prompt: Orders an item." in output.err and "needs item" in output.err and code == 2
