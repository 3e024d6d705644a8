"""The chat page in a real browser: Chromium, driven by playwright, on a server with the guide."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import scripted
from serving import Running, slow_steps, until

from edgellm.server.mcp import McpServer

pytestmark = pytest.mark.slow
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WIDE, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
REFUSED = "the server responded with a status of 400"  # what Chromium logs of a request that the page tells the user about
SECONDS = 60_000  # in ms, that anything may take
SAVED = """async (n) => {
  const database = await new Promise((done) => { indexedDB.open("edgellm").onsuccess = (event) => done(event.target.result); });
  const request = database.transaction("messages").objectStore("messages").getAll();
  const messages = await new Promise((done) => { request.onsuccess = () => done(request.result); });
  database.close();
  return messages.length >= n && messages.every((message) => !message.running);
}"""
HOSTILE = """# <script>window.hacked = 1</script>

<img src=x onerror="window.hacked = 2"> <svg onload="window.hacked = 3"></svg> <iframe src="javascript:window.hacked = 4"></iframe>
[press](javascript:window.hacked=5) [data](data:text/html,x) ![remote](https://example.com/pixel.png) [good](https://example.com/a_(b))

| a | b |
|---|---|
| `<b>` | **bold** |

```html
<script>window.hacked = 6</script>
```
<a href="javascript:window.hacked=7" onclick="window.hacked=8">x</a> <style>body { display: none }</style>
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, server: Running) -> Iterator[Callable[..., Any]]:
    """Opens the page in a fresh profile; the test fails where the page logged an error."""
    errors = list[str]()
    with contextlib.ExitStack() as contexts:

        def page(**options: Any) -> Any:
            context = browser.new_context(**{"viewport": WIDE, **options})
            contexts.callback(context.close)
            tab = context.new_page()
            watched(tab, errors)
            shown(tab, server.address)
            return tab

        yield page
    assert errors == []


def watched(tab: Any, errors: list[str]) -> None:
    tab.set_default_timeout(SECONDS)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" and REFUSED not in message.text else None
    )
    tab.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: errors.append(request.url) if outside(request.url) else None)


def outside(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:"))


def shown(tab: Any, address: str) -> None:
    tab.goto(f"{address}/")
    tab.wait_for_selector("#model option", state="attached")


def ask(tab: Any, text: str) -> None:
    """Send a message, and wait for the end of its answer."""
    before = tab.locator(".message.assistant").count()
    tab.fill("#message", text)
    tab.press("#message", "Enter")
    ended(tab, before + 1)


def ended(tab: Any, answers: int) -> None:
    """Wait until so many answers are shown, complete and saved."""
    tab.locator(".message.assistant").nth(answers - 1).wait_for()
    tab.wait_for_selector("#send[aria-label=Send]")
    until(lambda: tab.evaluate(SAVED, tab.locator(".message").count()))


def answering(tab: Any, text: str, *, pause: bool = False, size: int = 7) -> None:
    """Let the server's next answers be this text; with `pause`, a stream that never ends."""
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    lines = [{"choices": [{"index": 0, "delta": {"content": chunk}, "finish_reason": None}]} for chunk in chunks]
    lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + ("" if pause else "data: [DONE]\n\n")
    tab.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def answers(tab: Any) -> list[str]:
    return [each.strip() for each in tab.locator(".message.assistant .body").all_inner_texts()]


def screenshot(tab: Any, name: str) -> None:
    """A picture for the docs, where EDGELLM_SCREENSHOTS names the folder."""
    if folder := os.environ.get("EDGELLM_SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / f"page-{name}.png")


def test_a_question_is_answered_and_survives_a_reload(opened: Callable[..., Any]) -> None:
    tab = opened()
    ask(tab, "What is edgellm?")
    first = answers(tab)
    assert len(first) == 1 and "edgellm" in first[0].lower()
    assert "tokens/s" in tab.locator(".stats").first.inner_text()
    assert tab.locator("#context").is_visible()
    tab.reload()
    tab.locator(".message.assistant").first.wait_for()
    assert answers(tab) == first and tab.locator("#chats .open").inner_text() == "What is edgellm?"
    ask(tab, "How do I use it from Python?")
    screenshot(tab, "wide")


def test_branches_of_another_answer_and_of_an_edit(opened: Callable[..., Any]) -> None:
    tab = opened()
    ask(tab, "Hello")
    tab.click("button[aria-label='Another answer']")
    tab.locator(".message.assistant .branches", has_text="2/2").wait_for()
    tab.click("button[aria-label='Earlier version']")
    tab.locator(".message.assistant .branches", has_text="1/2").wait_for()
    tab.press("#message", "ArrowUp")  # edits the last question
    tab.fill(".editor", "What can you do?")
    tab.press(".editor", "Enter")
    tab.locator(".message.user .body", has_text="What can you do?").wait_for()
    tab.locator(".message.user .branches", has_text="2/2").wait_for()
    ended(tab, 1)


def test_a_hostile_answer_stays_text(opened: Callable[..., Any]) -> None:
    for size in (1, 3, 1000):
        tab = opened()
        answering(tab, HOSTILE, size=size)
        ask(tab, "<img src=x onerror='window.hacked = 9'>")
        assert tab.evaluate("() => window.hacked") is None
        assert tab.locator("#thread :is(script, iframe, style, img, svg[onload])").count() == 0
        links = tab.evaluate("() => [...document.querySelectorAll('#thread a')].map((link) => link.href)")
        assert links == ["https://example.com/pixel.png", "https://example.com/a_(b)"]
        assert "<script>window.hacked = 1</script>" in tab.locator("#thread h1").inner_text()
        assert tab.locator("#thread td code").inner_text() == "<b>"
        assert tab.locator(".message.user .body").inner_text() == "<img src=x onerror='window.hacked = 9'>"


def test_a_stopped_answer_is_kept_and_the_server_is_free_again(opened: Callable[..., Any], server: Running) -> None:
    tab = opened()
    tab.click("#open-settings")
    tab.fill("#set-schema", json.dumps({"type": "array", "items": {"type": "integer"}, "minItems": 900}))
    tab.click("#settings .primary")
    tab.locator("#settings").wait_for(state="hidden")
    with slow_steps():
        tab.fill("#message", "Count")
        tab.press("#message", "Enter")
        tab.wait_for_selector("#send[aria-label=Stop]")
        tab.locator(".message.assistant .body", has_text="[").wait_for()
        tab.keyboard.press("Escape")
        tab.locator(".note", has_text="Stopped.").wait_for()
        until(lambda: not server.busy())
    assert answers(tab)[0].startswith("[")


def test_errors_are_reported_in_the_conversation(opened: Callable[..., Any], server: Running) -> None:
    tab = opened()
    answering(tab, "It begins", pause=True)
    ask(tab, "Hello")
    tab.locator(".note.error", has_text="connection ended").wait_for()
    assert answers(tab) == ["It begins"]
    tab.unroute("**/v1/chat/completions")
    ask(tab, "word " * 3000)
    tab.locator(".note.error", has_text="context length, 1024").wait_for(state="attached")  # it may be outside of the view


def test_two_tabs_share_the_chats(browser: Any, server: Running) -> None:
    errors = list[str]()
    context = browser.new_context(viewport=WIDE)
    first, second = context.new_page(), context.new_page()
    for tab in (first, second):
        watched(tab, errors)
        shown(tab, server.address)
    ask(first, "Hello")
    second.locator("#chats .open", has_text="Hello").click()
    second.locator(".message.assistant").wait_for()
    ask(first, "What can you do?")
    second.locator(".message").nth(3).wait_for()  # the other tab follows
    until(lambda: answers(second) == answers(first))
    first.bring_to_front()  # a tab behind another one draws once a second
    first.locator("#chats li").last.hover()
    first.click("button[aria-label='Delete Hello']")
    first.click("#confirm-yes")
    second.locator("#empty").wait_for()
    context.close()
    assert errors == []


def test_export_and_import(opened: Callable[..., Any], tmp_path: Path) -> None:
    tab = opened()
    ask(tab, "Hello")
    with tab.expect_download() as download:
        tab.click("#export")
    saved = tmp_path / "chats.json"
    download.value.save_as(saved)
    other = opened()
    other.set_input_files("#import-file", saved)
    other.locator("#chats .open", has_text="Hello").click()
    other.locator(".message.assistant").wait_for()
    assert answers(other) == answers(tab)
    (tmp_path / "bad.json").write_text('{"chats": 1}')
    other.set_input_files("#import-file", tmp_path / "bad.json")
    other.locator("#load-state", has_text="Can't import bad.json").wait_for()


def test_two_thousand_messages_open_at_once(opened: Callable[..., Any]) -> None:
    tab = opened()
    text = "## Title\n\nSome **bold** text and `code`.\n\n- one\n- two\n\n```python\nprint(1)\n```\n" + "words " * 100
    messages = [
        {"id": f"m{k}", "chat": "long", "parent": f"m{k - 1}" if k else None, "role": ("user", "assistant")[k % 2], "created": k,
         "content": text if k % 2 else f"Question {k}"}
        for k in range(2000)
    ]  # fmt: skip
    chat = {"id": "long", "title": "Long", "created": 1, "updated": 1, "selected": {}, "settings": {}}
    data = {"format": "edgellm-chats", "version": 1, "chats": [chat], "messages": messages}
    tab.set_input_files("#import-file", {"name": "long.json", "mimeType": "application/json", "buffer": json.dumps(data).encode()})
    tab.click("#chats .open")
    tab.locator(".message").nth(1999).wait_for(state="attached")
    tab.locator(".message h2").last.wait_for()
    assert tab.locator(".message h2").count() < 300  # the others are filled when they come near the view
    tab.evaluate("() => document.getElementById('messages').scrollTo(0, 0)")
    tab.locator(".message").nth(1).locator("h2", has_text="Title").wait_for()


def test_phone_width_keyboard_and_labels(opened: Callable[..., Any]) -> None:
    phone = opened(viewport=PHONE, color_scheme="dark")
    ask(phone, "What is edgellm?")
    assert phone.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    screenshot(phone, "phone")
    phone.click("#menu")
    phone.locator("#new-chat").wait_for()
    phone.keyboard.press("Escape")
    unlabelled = phone.evaluate(
        "() => [...document.querySelectorAll('button, input:not([hidden]), textarea, select')].filter((node) =>"
        " !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML)"
    )
    assert unlabelled == []
    tab = opened(color_scheme="dark")
    tab.keyboard.type("How do I stream an answer in Python?")  # the message box has the focus at once
    tab.keyboard.press("Enter")
    ended(tab, 1)
    screenshot(tab, "dark")
    tab.keyboard.press("Alt+n")
    tab.locator("#empty").wait_for()
    assert tab.locator(".message").count() == 0
    tab.keyboard.press("Alt+Comma")
    tab.locator("#settings").wait_for()


def test_tools_of_mcp_servers_are_run_when_the_user_says_so(browser: Any, tmp_path: Path) -> None:
    """The call is shown and asked about; its result goes back to the model, and is not asked about again where that was said."""
    call = '<tool_call>\n{"name": "price", "arguments": {"item": "tea"}}\n</tool_call>'

    def script(conversation: str) -> str:
        asked = conversation.rpartition("<|im_start|>")[2]
        if "grow" in asked and not asked.startswith("tool\n"):
            return call.replace("price", "grow").replace('{"item": "tea"}', "{}")
        return f"The shop said: {asked[5:22]}" if asked.startswith("tool\n") else call if "price" in asked else "Hello."

    shop = McpServer("shop", sys.executable, (str(Path(__file__).resolve().parents[1] / "helpers" / "mcp_server.py"),))
    errors = list[str]()
    with scripted(tmp_path / "toy.gguf", script, mcp=(shop,)) as server, contextlib.closing(browser.new_context()) as context:
        tab = context.new_page()
        watched(tab, errors)
        shown(tab, server.address)
        said = {"once": "tea costs 3 euros", "no": "The user did not", "always": "tea costs 3 euros"}
        for number, (button, result) in enumerate(said.items()):
            tab.fill("#message", "price?")
            tab.press("#message", "Enter")
            tab.locator("#tool-dialog[open]").wait_for()
            assert '"item": "tea"' in tab.locator("#tool-arguments").inner_text()
            tab.click(f"#tool-dialog button[value={button}]")
            ended(tab, 2 * number + 2)
            tab.locator(".message.tool summary").last.click()
            tab.locator(".message.tool").last.get_by_text(result).wait_for()
        answered = tab.locator(".message.assistant").count()
        tab.type("#message", "price again")  # the dialog gave the focus back
        tab.press("#message", "Enter")
        ended(tab, answered + 2)
        assert not tab.locator("#tool-dialog[open]").count()
        tab.reload()
        tab.locator(".message.tool").nth(3).wait_for()
        assert tab.locator(".message.tool").count() == 4
        tab.fill("#message", "grow")
        tab.press("#message", "Enter")
        tab.click("#tool-dialog button[value=once]")
        tab.locator(".message.tool .images img").wait_for(state="attached")  # a picture in the result
        ended(tab, answered + 4)
        assert errors == []


def test_resources_and_prompts_of_mcp_servers_are_mentioned(browser: Any, tmp_path: Path) -> None:
    """With the keyboard alone: a resource comes with the message, and a prompt is filled in."""
    shop = McpServer("shop", sys.executable, (str(Path(__file__).resolve().parents[1] / "helpers" / "mcp_server.py"),))
    errors = list[str]()

    def script(conversation: str) -> str:
        asked = conversation.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
        return " | ".join(asked.split("\n\n"))

    with scripted(tmp_path / "toy.gguf", script, mcp=(shop,)) as server, contextlib.closing(browser.new_context()) as context:
        tab = context.new_page()
        watched(tab, errors)
        shown(tab, server.address)
        tab.type("#message", "Now @hou")
        tab.locator("#mentions li").first.wait_for()
        assert tab.locator("#mentions li").all_inner_texts()[0].split() == ["shop:hours", "resource:", "When", "it", "is", "open"]
        tab.press("#message", "Enter")
        tab.locator("#attachments .text-file").wait_for()
        tab.type("#message", "when? @ord")
        tab.press("#message", "Tab")
        tab.locator("#prompt-dialog[open]").wait_for()
        tab.keyboard.type("tea")
        tab.keyboard.press("Enter")
        until(lambda: "1 of tea" in tab.input_value("#message"))
        tab.press("#message", "Enter")
        ended(tab, 1)
        said = tab.locator(".message.assistant").inner_text()
        assert "shop:hours: | open from nine to five | Now when? I take 1 of tea, price?" in said, said
        assert tab.locator(".message.user .text-file").inner_text() == "shop:hours" and errors == []
