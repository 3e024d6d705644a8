"""OpenAI's own client against a running server: every call does what its documentation says, errors are its exceptions."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import openai
import pytest
from serving import LONG, Running, running, slow_steps, until, user

import edgellm

CHAT = "/v1/chat/completions"
GREEDY: dict[str, Any] = {"model": "guide", "temperature": 0}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def test_answers_are_the_librarys(client: openai.OpenAI) -> None:
    with edgellm.load("guide") as model:
        wanted = model.chat(user("What is edgellm?"), temperature=0)
    answer = client.chat.completions.create(messages=user("What is edgellm?"), **GREEDY)
    assert answer.choices[0].message.content == wanted.text and answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        wanted.stats.prompt_tokens,
        wanted.stats.generated_tokens,
    )


def test_a_stream_has_the_role_first_and_the_reason_last(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=user(), **GREEDY).choices[0].message.content
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(messages=user(), **options, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices == [] and chunks[-1].usage
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage.prompt_tokens_details is not None and chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_options_reach_the_library(client: openai.OpenAI) -> None:
    cut = client.chat.completions.create(messages=user(), max_completion_tokens=3, **GREEDY)
    assert cut.choices[0].finish_reason == "length" and cut.usage and cut.usage.completion_tokens == 3
    stopped = client.chat.completions.create(messages=user(), stop=["guide"], **GREEDY)
    assert stopped.choices[0].finish_reason == "stop" and "guide" not in (stopped.choices[0].message.content or "")
    seeded = [client.chat.completions.create(model="guide", messages=user(), seed=7, n=2) for _ in range(2)]
    texts = [[choice.message.content for choice in each.choices] for each in seeded]
    assert texts[0] == texts[1] and [choice.index for choice in seeded[0].choices] == [0, 1]


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=user(), logprobs=True, top_logprobs=2, max_tokens=4, **GREEDY)
    content = answer.choices[0].logprobs
    assert content is not None and content.content is not None and len(content.content) == 4
    for token in content.content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 2 and token.top_logprobs[0].token == token.token
        assert token.bytes is not None and bytes(token.bytes).decode() == token.token


def test_forms(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    for stop in (None, ["<end_code>", "e"]):  # smolagents sends both
        answer = client.chat.completions.create(messages=user("Is it?"), response_format=form, stop=stop, **GREEDY)
        assert isinstance(json.loads(answer.choices[0].message.content or "")["yes"], bool)
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        bad: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}
        client.chat.completions.create(messages=user(), response_format=bad, **GREEDY)


@pytest.mark.parametrize(
    "asked, wanted",
    [
        ({"json_schema": {"enum": ["yes", "no"]}}, r'"(yes|no)"'),
        ({"guided_json": '{"enum": [1, 2]}'}, "1|2"),
        ({"guided_choice": ["red", "blue"]}, "red|blue"),
        ({"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, "true|false"),
        ({"grammar": 'start: "x" | "y"'}, "x|y"),
        ({"grammar": 'root ::= "x" | "y"'}, "x|y"),
        ({"guided_grammar": "root ::= [xy]{2}"}, "[xy]{2}"),
    ],
)
def test_forms_of_llama_server_and_vllm(server: Running, asked: dict[str, Any], wanted: str) -> None:
    body = {"max_tokens": 30, **asked}
    assert re.fullmatch(wanted, server.ask(CHAT, {**body, "messages": user()})[1]["choices"][0]["message"]["content"])
    assert re.fullmatch(wanted, server.ask("/v1/completions", {**body, "prompt": "x"})[1]["choices"][0]["text"])
    form = {"type": "json", "value": {"enum": ["yes"]}}  # text-generation-inference's
    assert server.ask(CHAT, {"messages": user(), "response_format": form})[1]["choices"][0]["message"]["content"] == '"yes"'
    for wrong in (
        {"grammar": 'root ::= "x'},
        {"guided_json": "{"},
        {"min_tokens": 5},
        {"stop_token_ids": [3]},
        {"guided_regex": "("},
        {**asked, "guided_regex": "a", "guided_choice": ["a"]},
    ):
        status, answer = server.ask(CHAT, {"messages": user(), **wrong})
        assert status == 400 and answer["error"]["message"], wrong


def test_models(client: openai.OpenAI) -> None:
    assert "guide" in [model.id for model in client.models.list()]
    assert client.models.retrieve("guide").id == "guide"
    for listed in client.models.list():  # what Mistral's client needs to read a model
        assert listed.model_extra and listed.model_extra["type"] == "base" and listed.model_extra["capabilities"]["completion_chat"]
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="no-such-model", messages=user())
    assert missing.value.code == "model_not_found"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "guide/../guide", "C:\\x", "a" * 5000, "\u202eguide", "nul\0"])
def test_no_name_is_a_path(server: Running, name: str) -> None:
    assert server.ask("/v1/chat/completions", {"model": name, "messages": user()})[0] == 404


def test_a_prompt_that_does_not_fit_names_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as full:
        client.chat.completions.create(messages=user("river " * 3000), **GREEDY)
    assert full.value.code == "context_length_exceeded" and "1024" in str(full.value) and "tokens" in str(full.value)
    assert "is longer than the model's context length" in str(full.value)  # LiteLLM's ContextWindowExceededError
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(messages=user("river " * 3000), stream=True, **GREEDY)
    old = [{"role": "user", "content": "river " * 900}, {"role": "assistant", "content": "Yes."}]
    body = {"messages": [*old, *user()], "truncation": "auto", "max_tokens": 3, **GREEDY}
    answer = client.chat.completions.with_raw_response.create(messages=[*old, *user()], extra_body=body, **GREEDY)  # type: ignore[list-item]
    assert json.loads(answer.text)["timings"]["forgotten_messages"] == [0, 1]


def test_a_client_that_leaves_stops_its_answer(server: Running, client: openai.OpenAI) -> None:
    with slow_steps():
        with client.chat.completions.create(messages=user(), stream=True, extra_body=LONG, model="guide") as stream:
            next(iter(stream))
            assert server.busy() == 1
        assert until(lambda: not server.busy()) < 10


def test_an_alias_and_another_model_by_name() -> None:
    with running(aliases={"gpt-4o": "guide"}) as server:
        assert server.ask("/v1/chat/completions", {"model": "gpt-4o", "messages": user(), "max_tokens": 2})[1]["model"] == "guide"


def test_a_model_is_unloaded_and_loaded_again() -> None:
    with running(keep_alive=0.1) as server:
        until(lambda: not server.models())
        assert server.ask("/v1/chat/completions", {"messages": user(), "max_tokens": 2})[0] == 200
        until(lambda: not server.models())


def test_a_full_queue_is_reported_and_the_foreground_comes_first() -> None:
    with running(load={"parallel": 1, "queue": 2}) as server, contextlib.ExitStack() as stack:
        body = {"messages": user(), "stream": True, **LONG, "max_tokens": 400}
        pool = stack.enter_context(ThreadPoolExecutor(4))
        slowly = stack.enter_context(contextlib.ExitStack())
        slowly.enter_context(slow_steps())
        first = pool.submit(server.ask, CHAT, body)
        until(lambda: server.busy() == 1)
        short = {"messages": user(), "max_tokens": 3}
        background = pool.submit(server.ask, CHAT, short, headers={"x-priority": "background"})
        until(lambda: server.busy() == 2)
        foreground = pool.submit(server.ask, CHAT, short)
        until(lambda: server.busy() == 3)
        (model,) = server.models()
        assert [request.background for request in model.engine.core.waiting] == [False, True]
        status, headers, answer = server.exchange(CHAT, {"messages": user()})
        assert status == 429 and headers["retry-after"] == "2" and json.loads(answer)["error"]["code"] == "rate_limit_exceeded"
        slowly.close()
        assert first.result()[0] == background.result()[0] == foreground.result()[0] == 200


def test_many_clients_at_once_get_the_answers_of_one() -> None:
    before = set(threading.enumerate())
    with running(load={"parallel": 4, "queue": 200}) as server, ThreadPoolExecutor(60) as pool:
        questions = [f"What is {word}?" for word in ("edgellm", "a token", "GGUF")]
        ask = partial(server.ask, CHAT)
        bodies = [{"messages": user(text), "max_tokens": 8, "temperature": 0} for text in questions]
        alone = [ask(body)[1]["choices"][0]["message"]["content"] for body in bodies]
        with slow_steps():
            futures = [pool.submit(ask, bodies[k % 3]) for k in range(60)]
            until(lambda: server.busy() > 8)
            assert sum(thread.name.startswith("edgellm") for thread in set(threading.enumerate()) - before) <= 6
        assert [each.result()[1]["choices"][0]["message"]["content"] for each in futures] == [alone[k % 3] for k in range(60)]


def test_log_probabilities_under_load_are_the_librarys_bit_for_bit() -> None:
    texts = [" ".join(["Tell me about models."] * (1 + 7 * k % 12)) for k in range(12)]
    options: dict[str, Any] = {"max_tokens": 24, "temperature": 0.8, "ignore_eos": True}
    with edgellm.load("guide") as model:
        wanted = [model.chat(user(text), seed=k, logprobs=0, **options).logprobs for k, text in enumerate(texts)]
    with running(load={"parallel": 6}) as server, ThreadPoolExecutor(12) as pool:
        bodies = [{"messages": user(text), "seed": k, "logprobs": True, **options} for k, text in enumerate(texts)]
        found = [answer["choices"][0]["logprobs"]["content"] for _, answer in pool.map(partial(server.ask, CHAT), bodies)]
    for given, exact in zip(found, wanted, strict=True):
        assert exact is not None and [each["logprob"] for each in given] == [each.logprob for each in exact]
