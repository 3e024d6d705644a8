"""Each call that the documentation of the openai, anthropic and ollama packages shows, by these packages: it works, or is refused
as their own exception, in a sentence."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import ollama
import openai
import pytest
from pydantic import BaseModel
from scripted import scripted
from serving import Running, user


class Person(BaseModel):
    name: str
    age: int


PERSON = '{"name":"Ann","age":30}'
HELLO = "Hello, friend."
SCHEMA: dict[str, Any] = Person.model_json_schema()
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
Refused = tuple[type[Exception], str]


def script(conversation: str) -> str | list[str]:
    asked = conversation.rpartition("<|im_start|>")[2]
    if asked.startswith("tool\n"):
        return f"Result: {asked[5:].partition('<|im_end|>')[0]}"
    if "person" in asked:
        return [PERSON, PERSON.replace(",", ", ").replace(":", ": ")]
    if "think" in asked:
        return f"<think>\nHm.\n</think>\n\n{HELLO}"
    if "weather" in asked:
        return CALL
    if "earlier" in asked:
        return f"{conversation.count('Hello')} times"
    return HELLO


class Clients:
    """The three clients of one server."""

    def __init__(self, server: Running) -> None:
        self.o = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
        self.a = anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)
        self.l = ollama.Client(host=server.address)

    def chat(self, text: str = "Hi", **options: Any) -> Any:
        return self.o.chat.completions.create(model="toy", messages=user(text), **options)  # type: ignore[call-overload]

    def talk(self, *messages: Any) -> Any:
        return self.o.chat.completions.create(model="toy", messages=messages).choices[0].message.content

    def parsed(self) -> Any:
        asked: Any = user("person")
        return self.o.chat.completions.parse(model="toy", messages=asked, response_format=Person).choices[0].message.parsed

    def streamed(self, **options: Any) -> Any:
        asked: Any = user("person")
        with self.o.chat.completions.stream(model="toy", messages=asked, response_format=Person, **options) as stream:
            assert {"chunk", "content.delta", "content.done"} <= {event.type for event in stream}
            return stream.get_final_completion().choices[0].message.parsed

    def respond(self, text: str | list[Any] = "Hi", **options: Any) -> Any:
        return self.o.responses.create(model="toy", input=text, **options)

    def responded(self) -> Any:
        with self.o.responses.stream(model="toy", input="person", text_format=Person) as stream:
            kinds = [event.type for event in stream]
            assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
            return stream.get_final_response().output_parsed

    def message(self, content: Any = "Hi", **options: Any) -> Any:
        return self.a.messages.create(model="toy", max_tokens=100, messages=[{"role": "user", "content": content}], **options)

    def block(self, **block: Any) -> Any:
        return self.message([block, {"type": "text", "text": "?"}]).content[0].text

    def counted(self, **options: Any) -> int:
        messages: Any = user("Hi")
        return self.a.messages.count_tokens(model="toy", messages=messages, **options).input_tokens

    def read(self, **options: Any) -> int:
        """Tokens of the prompt as it was read, cached or not."""
        usage = self.a.messages.create(model="toy", max_tokens=2000, messages=user("Hi"), **options).usage  # type: ignore[arg-type]
        return usage.input_tokens + (usage.cache_read_input_tokens or 0)

    def logged(self) -> Any:
        asked: Any = {**ASKED, "max_output_tokens": 2, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        whole = self.o.responses.create(**asked).output[0].content[0].logprobs  # type: ignore[union-attr]
        events = list(self.o.responses.create(**asked, stream=True))
        parts = [each for event in events if event.type == "response.output_text.delta" for each in event.logprobs]
        assert [each.token for each in whole] == [each.token for each in parts] and len(whole) == 2
        return [len(whole[0].top_logprobs), len(events[-1].response.output[0].content[0].logprobs), len(parts[0].top_logprobs)]

    def parts(self) -> Any:
        """Each part is added before its first delta, and done after its last."""
        added, done = list[str](), list[str]()
        for event in self.o.responses.create(model="toy", input="think", stream=True):
            if event.type == "response.content_part.added":
                added.append(event.part.type)
            elif event.type == "response.content_part.done":
                done.append(event.part.type)
            elif event.type.endswith("_text.delta"):
                assert event.type == f"response.{added[-1]}.delta" and len(done) == len(added) - 1
        assert done == added
        return added

    def continued(self) -> Any:
        begun: list[Any] = [*user("Hi"), {"role": "assistant", "content": "Hello,"}]
        return self.a.messages.create(model="toy", max_tokens=100, messages=begun).content[0].text  # type: ignore[union-attr]

    def message_stream(self) -> Any:
        with self.a.messages.stream(model="toy", max_tokens=100, messages=user("Hi")) as stream:  # type: ignore[arg-type]
            return "".join(stream.text_stream), stream.get_final_message().stop_reason

    def with_tools(self) -> Any:
        @anthropic.beta_tool
        def weather(city: str) -> str:
            """The weather.

            Args:
                city: where
            """
            return f"rain in {city}"

        runner = self.a.beta.messages.tool_runner(model="toy", max_tokens=100, tools=[weather], messages=user("weather"))  # type: ignore[arg-type]
        return runner.until_done().content[0].text  # type: ignore[union-attr]

    def ask(self, **options: Any) -> Any:
        return self.l.chat("toy", user("Hi"), **options)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with scripted(tmp_path_factory.mktemp("scripted") / "toy.gguf", script) as server:
        yield Clients(server)


FLAT: Any = {"type": "function", "name": "weather", "strict": True, "parameters": SCHEMA}
ASKED: Any = {"model": "toy", "input": "Hello"}
BLOCK, WEB = {"name": "weather", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
ANN = Person(name="Ann", age=30)
CACHED = {"type": "ephemeral"}
DOCUMENT = {"type": "document", "title": "Grass", "source": {"type": "text", "media_type": "text/plain", "data": "green"}}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
REFERENCE = [{"type": "tool_reference", "tool_name": "x"}]
ELSEWHERE: list[Any] = [
    *user(),
    {"role": "assistant", "content": [SEARCH, FOUND, {"type": "tool_use", "id": "t", "name": "x", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": REFERENCE}]},
    {"role": "assistant", "content": [{"type": "compaction", "content": "All was said."}]},
    *user(),
]
WORKS: dict[str, tuple[Callable[[Clients], Any], Any]] = {
    "chat.completions.parse": (Clients.parsed, ANN),
    "chat.completions.stream": (Clients.streamed, ANN),
    "chat.completions with_raw_response": (
        lambda c: c.o.chat.completions.with_raw_response.create(model="toy", messages=user()).parse().choices[0].message.content,
        HELLO,
    ),
    "chat.completions with developer": (lambda c: c.talk({"role": "developer", "content": "x"}, *user()), HELLO),
    "chat.completions of a prefix": (
        lambda c: c.talk(*user(), {"role": "assistant", "content": "Hello,", "prefix": True}),
        " friend.",
    ),
    "chat.completions with older messages": (
        lambda c: c.talk(
            *user(),
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "z"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "x"}]},
            *user(),
        ),
        HELLO,
    ),
    "request id": (lambda c: c.chat()._request_id[:4], "req_"),
    "models.list": (lambda c: next(iter(c.o.models.list())).id, "toy"),
    "models.retrieve": (lambda c: c.o.models.retrieve("toy").id, "toy"),
    "completions": (lambda c: len(c.o.completions.create(model="toy", prompt="x", max_tokens=3).choices), 1),
    "responses.create": (lambda c: c.respond().output_text, HELLO),
    "responses.parse": (lambda c: c.o.responses.parse(model="toy", input="person", text_format=Person).output_parsed, ANN),
    "responses.stream": (Clients.responded, ANN),
    "responses in the background": (lambda c: c.o.responses.retrieve(c.respond(background=True).id).status, "completed"),
    "responses.input_tokens": (
        lambda c: (
            c.o.responses.input_tokens.count(**ASKED, tools=[FLAT], tool_choice="required").input_tokens
            == c.o.responses.create(**ASKED, tools=[FLAT]).usage.input_tokens
        ),
        True,
    ),
    "responses with logprobs": (Clients.logged, [2, 2, 2]),
    "responses with reasoning, as the JavaScript client reads it": (Clients.parts, ["reasoning_text", "output_text"]),
    "messages.create": (lambda c: c.message().content[0].text, HELLO),
    "messages.stream": (Clients.message_stream, (HELLO, "end_turn")),
    "messages.parse": (
        lambda c: c.a.messages.parse(model="toy", max_tokens=100, messages=user("person"), output_format=Person).parsed_output,  # type: ignore[arg-type]
        ANN,
    ),
    "beta.messages.tool_runner": (Clients.with_tools, "Result: rain in Rome"),
    "messages.create of a prefix": (Clients.continued, " friend."),
    "messages.count_tokens": (
        lambda c: c.counted(tools=[BLOCK, WEB], thinking=THINKING) == c.read(tools=[BLOCK], thinking=THINKING) > c.counted() > 5,
        True,
    ),
    "messages with a tool of Anthropic's servers chosen": (
        lambda c: c.message(tools=[BLOCK, WEB], tool_choice={"type": "tool", "name": "web_search"}).content[0].text,
        HELLO,
    ),
    "messages with a document": (lambda c: c.block(**DOCUMENT), HELLO),
    "messages with search results": (
        lambda c: c.block(type="search_result", source="s", title="t", content=[{"type": "text", "text": "x"}]),
        HELLO,
    ),
    "messages with blocks of other servers": (
        lambda c: c.a.beta.messages.create(model="toy", max_tokens=100, messages=ELSEWHERE).content[0].text,
        HELLO,
    ),
    "messages with cache_control": (
        lambda c: c.message([{"type": "text", "text": "Hi", "cache_control": CACHED}], metadata={"user_id": "x"}).stop_reason,
        "end_turn",
    ),
    "anthropic models.list": (lambda c: next(iter(c.a.models.list(limit=1))).id, "toy"),
    "ollama.chat": (lambda c: c.ask().message.content, HELLO),
    "ollama.chat without content": (lambda c: c.l.chat("toy", [{"role": "user", "content": None}, *user()]).message.content, HELLO),
    "ollama.chat as stream": (lambda c: "".join(part.message.content for part in c.ask(stream=True)), HELLO),
    "ollama.chat with format": (lambda c: c.l.chat("toy", user("person"), format=SCHEMA).message.content, PERSON),
    "ollama.chat with logprobs": (
        lambda c: [len(each.top_logprobs) for each in c.ask(logprobs=True, top_logprobs=2, options={"num_predict": 2}).logprobs],
        [2, 2],
    ),
    "ollama.chat of a beginning": (
        lambda c: c.l.chat("toy", [*user(), {"role": "assistant", "content": "Hello,"}]).message.content,
        " friend.",
    ),
    "ollama.generate": (lambda c: c.l.generate("toy", "Hi").response, HELLO),
    "ollama.generate with logprobs": (
        lambda c: len(c.l.generate("toy", "Hi", stream=False, logprobs=True, options={"num_predict": 3}).logprobs or ()),
        3,
    ),
    "ollama.generate with context": (
        lambda c: c.l.generate("toy", "earlier?", context=c.l.generate("toy", "Hello").context).response,
        "2 times",
    ),
    "ollama.show": (lambda c: "completion" in (c.l.show("toy").capabilities or ()), True),
    "ollama.list": (lambda c: c.l.list().models[0].model, "toy"),
    "ollama.copy": (lambda c: (c.l.copy("toy", "other").status, c.l.chat("other", user()).message.content), ("success", HELLO)),
    "ollama unloads what isn't loaded": (
        lambda c: (c.l.chat("guide", [], keep_alive=0).done_reason, [each.model for each in c.l.ps().models]),
        ("unload", ["toy"]),
    ),
    "ollama unloads": (lambda c: (c.l.generate("toy", "", keep_alive=0).done_reason, list(c.l.ps().models)), ("unload", [])),
}

LATER = (openai.InternalServerError, "supported|stored|not made|in messages")
REFUSED: dict[str, tuple[Callable[[Clients], Any], Refused]] = {
    "files.create": (lambda c: c.o.files.create(file=b"x", purpose="batch"), LATER),
    "files.content": (lambda c: c.o.files.content("file-x"), LATER),
    "files.delete": (lambda c: c.o.files.delete("file-x"), LATER),
    "batches": (lambda c: c.o.batches.retrieve("x"), LATER),
    "moderations": (lambda c: c.o.moderations.create(input="x"), LATER),
    "images.generate": (lambda c: c.o.images.generate(prompt="x"), LATER),
    "images.edit": (lambda c: c.o.images.edit(image=b"x", prompt="x"), LATER),
    "audio.speech": (lambda c: c.o.audio.speech.create(model="x", voice="alloy", input="x"), LATER),
    "audio.transcriptions": (
        lambda c: c.o.audio.transcriptions.create(model="toy", file=("a.wav", b"x")),
        (openai.BadRequestError, "takes no audio"),
    ),
    "audio.translations": (lambda c: c.o.audio.translations.create(model="toy", file=("a.wav", b"x")), LATER),
    "vector_stores": (lambda c: c.o.vector_stores.search("x", query="y"), LATER),
    "conversations": (lambda c: c.o.conversations.create(), LATER),
    "responses.compact": (lambda c: c.o.responses.compact(model="toy", input="x"), LATER),
    "chat.completions.retrieve": (lambda c: c.o.chat.completions.retrieve("x"), LATER),
    "fine_tuning": (lambda c: c.o.fine_tuning.jobs.list(), LATER),
    "audio as answer": (lambda c: c.chat(modalities=["text", "audio"]), (openai.BadRequestError, "modalities")),
    "a conversation": (lambda c: c.respond(conversation="conv_1"), (openai.BadRequestError, "previous_response_id")),
    "an unknown response": (lambda c: c.respond(previous_response_id="resp_x"), (openai.BadRequestError, "not stored here")),
    "responses.retrieve": (lambda c: c.o.responses.retrieve("resp_x"), (openai.NotFoundError, "not stored here")),
    "responses.cancel": (lambda c: c.o.responses.cancel(c.respond().id), (openai.BadRequestError, "complete")),
    "a stored prompt": (
        lambda c: c.o.responses.create(model="toy", prompt={"id": "pmpt_1"}),
        (openai.BadRequestError, "instructions and input"),
    ),
    "no input": (lambda c: c.o.responses.create(model="toy", input=[]), (openai.BadRequestError, "input is missing")),
    "an unknown item": (
        lambda c: c.respond([{"type": "item_reference", "id": "msg_x"}, *user()]),
        (openai.BadRequestError, "not stored here"),
    ),
    "models.retrieve": (lambda c: c.o.models.retrieve("none"), (openai.NotFoundError, "not on this machine")),
    "models.delete": (lambda c: c.o.models.delete("toy"), (openai.APIStatusError, "method")),
    "messages.batches": (lambda c: c.a.messages.batches.create(requests=[]), (anthropic.InternalServerError, "batches")),
    "beta.files": (lambda c: c.a.beta.files.list(), (anthropic.InternalServerError, "files")),
    "anthropic models.retrieve": (lambda c: c.a.models.retrieve("none"), (anthropic.NotFoundError, "not_found_error")),
    "a PDF file": (
        lambda c: c.block(type="document", source={"type": "base64", "media_type": "application/pdf", "data": PICTURE}),
        (anthropic.BadRequestError, "plain text"),
    ),
    "an image elsewhere": (
        lambda c: c.block(type="image", source={"type": "url", "url": "https://example.com/x.png"}),
        (anthropic.BadRequestError, "base64"),
    ),
    "ollama.create": (lambda c: c.l.create("x", from_="toy"), (ollama.ResponseError, "create is not")),
    "ollama.push": (lambda c: c.l.push("x"), (ollama.ResponseError, "push is not")),
    "ollama.create_blob": (lambda c: c.l.create_blob(__file__), (ollama.ResponseError, "blobs are not")),
    "ollama.delete": (lambda c: c.l.delete("none"), (ollama.ResponseError, "not on this machine")),
    "ollama.generate with a template": (lambda c: c.l.generate("toy", "x", template="y"), (ollama.ResponseError, "template")),
}


@pytest.mark.parametrize("name", WORKS)
def test_calls(clients: Clients, name: str) -> None:
    call, wanted = WORKS[name]
    assert call(clients) == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_are_refused(clients: Clients, name: str) -> None:
    call, (kind, words) = REFUSED[name]
    with pytest.raises(kind, match=words) as caught:
        call(clients)
    assert not re.search("Traceback|has no such path", str(caught.value))


def test_responses_are_remembered(clients: Clients) -> None:
    """Named by a later response, listed with what they answered, and forgotten when they are deleted or not to be stored."""
    o, first = clients.o, clients.respond("Hello")
    second = clients.respond("earlier?", previous_response_id=first.id)
    assert second.output_text == "2 times" and second.previous_response_id == first.id
    assert [item.type for item in o.responses.input_items.list(second.id, limit=1)] == ["message"] * 3
    assert o.responses.retrieve(second.id).output_text == "2 times"
    by_reference: list[Any] = [*user("Hello"), {"type": "item_reference", "id": first.output[0].id}, *user("earlier?")]
    assert clients.respond(by_reference).output_text == "2 times"
    o.responses.delete(first.id)
    for missing in (first.id, clients.respond("Hello", store=False).id):
        with pytest.raises(openai.NotFoundError):
            o.responses.retrieve(missing)
    streamed = list(clients.respond("earlier?", previous_response_id=second.id, stream=True))
    assert streamed[-1].response.output_text == "2 times" and o.responses.retrieve(streamed[-1].response.id)


def test_pictures_in_results_of_tools_are_left_out_where_the_model_is_blind(clients: Clients) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "image", "source": source}]}
    talk: list[Any] = [
        *user("weather"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    said = clients.a.messages.create(model="toy", max_tokens=100, messages=talk).content[0]
    assert said.type == "text" and said.text.startswith("Result: (an image")
    items = [*user("weather"), {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}]
    output = [{"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}]
    said = clients.respond([*items, {"type": "function_call_output", "call_id": "c", "output": output}])
    assert said.output_text.startswith("Result: (an image")
