"""OpenAI's other endpoints: completions, embeddings, responses, reranking; metrics."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from serving import Running, running, user
from tiny_models import tiny_model

import edgellm
from edgellm.server.responses.requests import ResponsesBody

GREEDY: dict[str, Any] = {"model": "guide", "temperature": 0}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def model() -> Iterator[edgellm.Model]:
    with edgellm.load("guide") as opened:
        yield opened


def test_completions(client: openai.OpenAI, model: edgellm.Model) -> None:
    prompt = model.apply_template(user()).removeprefix("<s>")
    wanted = model.generate(model.chat_prompt(user()), max_tokens=16, temperature=0)
    answer = client.completions.create(prompt=prompt, **GREEDY)
    assert answer.choices[0].text == wanted.text and answer.choices[0].finish_reason == "length"
    ids = client.completions.create(prompt=model.chat_prompt(user()), **GREEDY)
    assert ids.choices[0].text == wanted.text
    parts = list(client.completions.create(prompt=prompt, stream=True, **GREEDY))
    assert "".join(part.choices[0].text for part in parts) == wanted.text and parts[-1].choices[0].finish_reason == "length"
    several = client.completions.create(prompt=[prompt, "Once"], n=2, max_tokens=2, **GREEDY)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text != several.choices[2].text
    with pytest.raises(openai.BadRequestError, match="filling in the middle"):
        client.completions.create(prompt="a", suffix="b", **GREEDY)


def test_echo_and_logprobs(client: openai.OpenAI, model: edgellm.Model) -> None:
    ids = model.tokenize("Once upon a time")
    wanted = model.logprobs(ids, 1)
    answer = client.completions.create(
        prompt="Once upon a time", echo=True, logprobs=1, max_tokens=2, extra_body={"ignore_eos": True}, **GREEDY
    ).choices[0]
    given = answer.logprobs
    assert given is not None and given.token_logprobs is not None and answer.text.startswith("Once upon a time")
    assert given.token_logprobs[0] is None
    assert given.token_logprobs[1 : len(ids)] == pytest.approx([each.logprob for each in wanted], abs=1e-5)
    assert len(given.token_logprobs) == len(ids) + 2
    scored = client.completions.create(prompt="Once upon a time", echo=True, logprobs=1, max_tokens=0, **GREEDY).choices[0]
    assert scored.logprobs is not None and scored.logprobs.token_logprobs == given.token_logprobs[: len(ids)]


def test_responses(client: openai.OpenAI, model: edgellm.Model) -> None:
    wanted = model.chat([{"role": "system", "content": "Be brief."}, *user("What is edgellm?")], temperature=0)
    answer = client.responses.create(input="What is edgellm?", instructions="Be brief.", **GREEDY)
    assert answer.output_text == wanted.text and answer.status == "completed"
    assert answer.usage and answer.usage.input_tokens == wanted.stats.prompt_tokens
    cut = client.responses.create(input="What is edgellm?", max_output_tokens=2, **GREEDY)
    assert cut.status == "incomplete" and cut.incomplete_details and cut.incomplete_details.reason == "max_output_tokens"
    counted = client.responses.input_tokens.count(input="What is edgellm?", instructions="Be brief.", model="guide")
    assert counted.input_tokens == wanted.stats.prompt_tokens


def test_responses_as_events(client: openai.OpenAI) -> None:
    whole = client.responses.create(input="What is edgellm?", **GREEDY)
    with client.responses.stream(input="What is edgellm?", **GREEDY) as stream:
        events = list(stream)
        last = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == list(range(len(events)))
    assert last.output_text == whole.output_text == "".join(e.delta for e in events if e.type == "response.output_text.delta")


def test_responses_of_agents() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Rain?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    tools = [{"type": kind, "name": "x"} for kind in ("web_search", "custom", "namespace", "image_generation", "mcp")]
    body = ResponsesBody.model_validate(
        {"input": items, "tools": [*tools, {"type": "function", "name": "weather", "parameters": {"type": "object"}}]}
    )
    talk = body.messages(body.items)
    assert [each["role"] for each in talk] == ["developer", "user", "assistant", "tool"]
    assert talk[2]["reasoning_content"] == "Hm." and talk[2]["tool_calls"][0]["function"]["name"] == "weather"
    assert talk[3] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    with edgellm.load("guide") as model:
        assert [tool["function"]["name"] for tool in body.prompting(model)["tools"]] == ["weather"]


def test_what_is_not_there(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="not stored here"):
        client.responses.create(input="x", previous_response_id="resp_1", **GREEDY)
    for path in ("/v1/files", "/v1/batches"):
        assert server.ask(path)[0] == 501
    with pytest.raises(openai.BadRequestError, match="embedding model"):
        client.embeddings.create(model="guide", input="x")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[openai.OpenAI, Path]]:
    path = tiny_model(tmp_path_factory.mktemp("embed") / "tiny-bert.gguf", "bert", "F32", tokenizer="spm")
    with running(models=(str(path),)) as server:
        yield openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0), path


def test_embeddings(embedder: tuple[openai.OpenAI, Path]) -> None:
    client, path = embedder
    with edgellm.load(path) as model:
        wanted, ids = model.embed(["hello", "world"]), [model.tokenize(text) for text in ("hello", "world")]
    for given in (["hello", "world"], ids):
        answer = client.embeddings.create(model="tiny-bert", input=given)  # the client asks for base64 by itself
        assert np.array([each.embedding for each in answer.data], np.float32).tolist() == wanted.tolist()
        assert answer.usage.prompt_tokens == sum(map(len, ids))
    numbers = client.embeddings.create(model="tiny-bert", input="hello", encoding_format="float")
    assert numbers.data[0].embedding == wanted[0].tolist()
    coded: Any = client.embeddings.with_raw_response.create(model="tiny-bert", input="hello", encoding_format="base64")
    assert base64.b64decode(json.loads(coded.text)["data"][0]["embedding"]) == wanted[0].astype("<f4").tobytes()
    short = client.embeddings.create(model="tiny-bert", input="hello", dimensions=4).data[0].embedding
    assert len(short) == 4 and np.linalg.norm(short) == pytest.approx(1, abs=1e-6)
    for bad in ([], [""] * 3000, "river " * 5000):
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="tiny-bert", input=bad)


def test_metrics(server: Running) -> None:
    server.ask("/v1/chat/completions", {"messages": user(), "max_tokens": 3, "temperature": 0})
    status, text = server.ask("/metrics")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert status == 200 and int(lines['edgellm_tokens_total{kind="generated",model="guide"}']) >= 3
    assert int(lines['edgellm_requests_total{status="200",model="guide"}']) >= 1
    assert lines["edgellm_time_to_first_token_seconds_count"] == lines['edgellm_time_to_first_token_seconds_bucket{le="+Inf"}']
    generated = sum(int(value) for name, value in lines.items() if name.startswith('edgellm_tokens_total{kind="generated"'))
    assert int(lines["llamacpp:tokens_predicted_total"]) == generated and int(lines["llamacpp:prompt_tokens_total"]) > 0
    assert lines["llamacpp:requests_processing"] == lines["llamacpp:requests_deferred"] == "0"
    assert lines['edgellm_parallel{model="guide"}'] == "4" and lines['edgellm_running{model="guide"}'] == "0"


def test_rerank(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = {"cls.output.weight": rng.standard_normal((1, 64)).astype(np.float32)}
    path = tiny_model(
        tmp_path / "tiny-rank.gguf", "bert", "F32", tokenizer="spm", metadata={"bert.pooling_type": 4}, tensors=tensors
    )
    texts = ["hello world", "a river", "sun and rain"]
    with edgellm.load(path) as model, running(models=(str(path),)) as server:
        ids = [[*model.tokenize("sun"), *model.tokenize(text)[int(model.tokenizer.add_bos) :]] for text in texts]
        scores = [1 / (1 + np.exp(-model.embed(each)[0, 0])) for each in ids]
        assert model.rerank("sun", texts) == pytest.approx(scores)
        documents = [texts[0], {"text": texts[1]}, texts[2]]
        status, answer = server.ask("/v1/rerank", {"query": "sun", "documents": documents, "top_n": 2, "return_documents": True})
        order = sorted(range(3), key=lambda index: -scores[index])[:2]
        assert status == 200 and [each["index"] for each in answer["results"]] == order
        assert [each["document"]["text"] for each in answer["results"]] == [texts[index] for index in order]
        assert [each["relevance_score"] for each in answer["results"]] == pytest.approx([scores[index] for index in order])
        with pytest.raises(edgellm.OptionError, match="documents"):
            model.rerank("sun", "one")  # type: ignore[arg-type]  # what is tested
