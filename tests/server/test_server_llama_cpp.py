"""llama-server's own API: its README's fields, several prompts, embeddings in its shape, adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Running, running, slow_steps, until, user
from tiny_adapters import tiny_adapter
from tiny_models import tiny_model

import edgellm
from edgellm.server import streaming

GREEDY: dict[str, Any] = {"n_predict": 8, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model() -> Iterator[edgellm.Model]:
    with edgellm.load("guide") as opened:
        yield opened


def test_tokens(server: Running, model: edgellm.Model) -> None:
    ids = server.ask("/tokenize", {"content": "Hello world"})[1]["tokens"]
    assert ids == model.tokenize("Hello world", add_special=False)
    pieces = server.ask("/tokenize", {"content": "Hello world", "with_pieces": True})[1]["tokens"]
    assert [piece["id"] for piece in pieces] == ids and "Hello" in "".join(piece["piece"] for piece in pieces)
    text = server.ask("/detokenize", {"tokens": ids})[1]
    assert text["content"] == text["prompt"] and text["content"].strip() == "Hello world"
    for body, special in (({"prompt": "Hello world"}, True), ({"prompt": "Hello world", "add_special_tokens": False}, False)):
        found = server.ask("/tokenize", body)[1]  # vLLM's
        assert found["tokens"] == model.tokenize("Hello world", add_special=special) and found["count"] == len(found["tokens"])
    assert server.ask("/tokenize", {})[0] == 400
    info = server.ask("/tokenizer_info")[1]
    assert (info["bos_token"], info["eos_token"], info["chat_template"]) == ("<s>", "</s>", model.template.source)
    assert server.ask("/detokenize", {"tokens": [10**9]})[0] == 400
    assert server.ask("/apply-template", {"messages": user()})[1]["prompt"] == model.apply_template(user())
    assert server.ask("/infill", {"input_prefix": "a", "input_suffix": "b"})[0] == 400


def test_llama_servers_completion(server: Running, model: edgellm.Model) -> None:
    wanted = model.generate("Once upon a time", max_tokens=8, temperature=0, ignore_eos=True)
    ids = model.tokenize("Once upon a time")
    for prompt in ("Once upon a time", ids, [*ids[:2], *ids[2:]], ["Once upon", *ids[len(model.tokenize("Once upon")) :]]):
        body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
        status, answer = server.ask("/completion", body)
        assert status == 200 and answer["content"] == wanted.text and answer["stop_type"] == "limit"
        assert (answer["tokens_predicted"], answer["tokens_evaluated"], answer["tokens"]) == (8, len(ids), list(wanted.token_ids))
    lines = server.ask("/completion", {**body, "stream": True})[1].split("\n\n")
    values = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(value["content"] for value in values) == wanted.text
    assert [value["stop"] for value in values] == [False] * (len(values) - 1) + [True]
    word = server.ask("/completion", {**body, "stop": [wanted.text[4:6]]})[1]
    assert word["stop_type"] == "word" and word["stopping_word"] == wanted.text[4:6] and word["content"] == wanted.text[:4]
    for stream in (False, True):
        text = server.ask("/completion", {**body, "n_probs": 2, "stream": stream})[1]
        parts = [text] if not stream else [json.loads(line[6:]) for line in text.split("\n\n") if line]
        found = [each for part in parts for each in part.get("completion_probabilities", ())]
        assert [each["id"] for each in found] == list(wanted.token_ids) and {len(each["top_logprobs"]) for each in found} == {2}
    assert server.ask("/completion", {})[0] == server.ask("/completion", {"prompt": [10**9]})[0] == 400


PROMPTS: list[tuple[Any, list[Any]]] = [  # what `prompt` may be, and the prompts that it stands for
    (["Once", "river"], ["Once", "river"]),
    (["Once"], ["Once"]),
    ([[1, 40, 7], "river", [1, 40]], [[1, 40, 7], "river", [1, 40]]),
    ([{"prompt_string": "Once"}, "river"], ["Once", "river"]),
    ({"prompt_string": "Once"}, ["Once"]),
]


@pytest.mark.parametrize(("given", "prompts"), PROMPTS)
def test_several_prompts(server: Running, model: edgellm.Model, given: Any, prompts: list[Any]) -> None:
    wanted = [model.generate(prompt, max_tokens=4, temperature=0, ignore_eos=True).text for prompt in prompts]
    body = {"prompt": given, **GREEDY, "n_predict": 4}
    status, found = server.ask("/completion", body)
    answers = found if len(prompts) > 1 else [found]
    assert status == 200 and [each["content"] for each in answers] == wanted
    assert [each["index"] for each in answers] == list(range(len(prompts)))
    values = streamed(server, {**body, "stream": True})
    assert ["".join(each["content"] for each in values if each["index"] == k) for k in range(len(prompts))] == wanted


def streamed(server: Running, body: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in server.ask("/completion", body)[1].split("\n\n") if line.startswith("data: ")]


def test_several_answers(server: Running) -> None:
    found = server.ask("/completion", {"prompt": ["Once", "river"], "n_cmpl": 2, "n_predict": 2, "seed": 5})[1]
    assert [each["index"] for each in found] == [0, 1, 2, 3] and len({each["generation_settings"]["seed"] for each in found}) == 2
    assert server.ask("/completion", {"prompt": [], "n_predict": 2})[0] == 400
    assert server.ask("/completion", {"prompt": ["a"] * 65, "n_predict": 2})[0] == 400
    assert server.ask("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}})[0] == 400


def test_fields_of_answers(server: Running, model: edgellm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt": "Once upon a time", **GREEDY, "top_k": 7, "dry_multiplier": 0.5, "dry_penalty_last_n": 9}
    answer = server.ask("/completion", body)[1]
    settings = answer["generation_settings"]
    assert (settings["top_k"], settings["dry_multiplier"], settings["dry_penalty_last_n"], settings["n_predict"]) == (7, 0.5, 9, 8)
    assert answer["prompt"] == model.detokenize(model.tokenize("Once upon a time"), skip_special=False)
    assert answer["has_new_line"] is ("\n" in answer["content"]) and answer["timings"]["predicted_per_token_ms"] > 0
    fields = ["content", "timings/predicted_n", "generation_settings/top_k", "nothing/here"]
    chosen = server.ask("/completion", {**body, "response_fields": fields})[1]
    assert chosen == {"content": answer["content"], "timings/predicted_n": 8, "generation_settings/top_k": 7}
    ids = model.tokenize("river " * 300)
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    for prompt, cached in ((ids, 0), ([*ids[:200], *ids[:100]], 200)):
        reports = streamed(server, {**body, "prompt": prompt, "stream": True, "return_progress": True})
        done = [each["prompt_progress"] for each in reports if "prompt_progress" in each]
        assert done and all(cached <= each["cache"] <= each["processed"] <= each["total"] == len(prompt) for each in done)


BIASES: list[tuple[Any, bool]] = [  # spellings that ban the answer's first token, and one that does not
    ([["ID", False]], True),
    ([["ID", -1000.0]], True),
    ({"ID": -1000.0}, True),
    ([["ID", 0.5]], False),
]


@pytest.mark.parametrize(("given", "bans"), BIASES)
def test_spellings_of_logit_bias(server: Running, given: Any, bans: bool) -> None:
    body = {"prompt": "Once upon a time", **GREEDY, "n_predict": 1}
    (token,) = server.ask("/completion", body)[1]["tokens"]
    biased = json.loads(json.dumps(given).replace('["ID"', f"[{token}").replace("ID", str(token)))
    status, answer = server.ask("/completion", {**body, "logit_bias": biased})
    assert status == 200 and (answer["tokens"] != [token]) is bans


def test_a_limit_of_time(server: Running, model: edgellm.Model) -> None:
    (line,) = model.tokenize("\n", add_special=False)[-1:]
    body = {"prompt": "Once", "n_predict": 400, "ignore_eos": True, "temperature": 0, "logit_bias": [[line, 1e5]]}
    with slow_steps():
        answer = server.ask("/completion", {**body, "t_max_predict_ms": 100})[1]
    assert answer["stop_type"] == "limit" and answer["tokens_predicted"] < 100


def test_props_and_slots(server: Running, model: edgellm.Model) -> None:
    props = server.ask("/props")[1]
    settings = props["default_generation_settings"]
    assert settings["n_ctx"] == 1024 and settings["params"]["top_k"] == model.sampling_options().options.top_k
    assert (props["bos_token"], props["eos_token"], Path(props["model_path"])) == ("<s>", "</s>", model.path)
    assert len(server.ask("/slots?fail_on_no_slot=1")[1]) == props["total_slots"] == 4
    with slow_steps(), server.connected() as client:
        body = json.dumps({"prompt": ["Once"] * 2, "n_cmpl": 2, "n_predict": 900, "ignore_eos": True}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: sum(slot["is_processing"] for slot in server.ask("/slots")[1]) == 4)
        assert server.ask("/slots?fail_on_no_slot=1")[0] == 503
    until(lambda: not server.busy())


def test_templates_with_options(tmp_path: Path) -> None:
    template = "{{ tools[0].function.name }}{{ x }}{% for message in messages %}{{ message.content }}{% endfor %}"
    path = tiny_model(tmp_path / "t.gguf", "llama", "F32", tokenizer="spm", metadata={"tokenizer.chat_template": template})
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}
    with running(models=(str(path),)) as server:
        body = {"messages": user("Hi"), "tools": [tool], "chat_template_kwargs": {"x": 1}}
        assert server.ask("/apply-template", body) == (200, {"prompt": "f1Hi"})


NORMS = {-1: lambda row: 1.0, 0: lambda row: np.abs(row).max() / 32760, 1: lambda row: np.abs(row).sum(), 2: np.linalg.norm}


def test_embeddings(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny-bert.gguf", "bert", "F32", tokenizer="spm")
    with edgellm.load(path) as opened, running(models=(str(path),)) as server:
        raw, usual = opened.embed(["hello", "world"], normalize=False), opened.embed(["hello", "world"])
        for body in ({"content": ["hello", "world"]}, {"input": ["hello", "world"]}):
            assert server.ask("/embedding", body)[1] == [{"index": k, "embedding": [row.tolist()]} for k, row in enumerate(usual)]
        assert server.ask("/embeddings", {"content": "hello"})[1] == [{"index": 0, "embedding": [usual[0].tolist()]}]
        assert server.ask("/embeddings", {"input": "hello"})[1]["data"][0]["embedding"] == usual[0].tolist()
        for norm, length in NORMS.items():
            ((row,),) = (each["embedding"] for each in server.ask("/embedding", {"content": "hello", "embd_normalize": norm})[1])
            assert row == pytest.approx(raw[0] / length(raw[0]), rel=1e-5)
        for wrong in ({}, {"content": []}, {"content": "x", "embd_normalize": "y"}):
            assert server.ask("/embedding", wrong)[0] == 400


def test_adapters(tmp_path: Path) -> None:
    """Scales of one request, then of all: in every protocol, with nothing of what was computed with others."""
    base = tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="spm")
    files = [tiny_adapter(tmp_path / f"{k}.gguf", base, seed=k) for k in range(2)]
    given = [(str(files[0]), 1.0), (str(files[1]), 0.0)]
    ids = [1, 40, 7, 60, 33, 12, 50, 5, 41]
    scales = ([1.0, 0.0], [0.0, 1.0], [0.5, -2.0], [0.0, 0.0])
    with edgellm.load(base, adapters=given) as opened:
        wanted = []
        for each in scales:
            with opened.session(adapters=list(zip(map(str, files), each, strict=True))) as session:
                wanted.append(session.generate(ids, max_tokens=8, temperature=0, ignore_eos=True).text)
    assert len(set(wanted)) == len(wanted)
    body = {"prompt": ids, **GREEDY}
    with running(models=(str(base),), load={"adapters": given}) as server:
        listed = server.ask("/lora-adapters")[1]
        assert listed == [{"id": k, "path": str(files[k].resolve()), "scale": 1.0 - k} for k in range(2)]
        for each, text in zip(scales, wanted, strict=True):
            lora = [{"id": k, "scale": scale} for k, scale in enumerate(each) if scale]
            assert server.ask("/completion", {**body, "lora": lora})[1]["content"] == text
        assert server.ask("/completion", body)[1]["content"] == wanted[0]
        for each, text in zip(scales, wanted, strict=True):
            lora = [{"id": k, "scale": scale} for k, scale in enumerate(each)]
            assert server.ask("/lora-adapters", lora) == (200, {"success": True})
            assert [one["scale"] for one in server.ask("/lora-adapters")[1]] == each
            asked = {"prompt": ids, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            assert server.ask("/v1/completions", asked)[1]["choices"][0]["text"] == text
            assert server.ask("/completion", body)[1]["content"] == text
        for path, wrong in (("/lora-adapters", [{"id": 2}]), ("/completion", {**body, "lora": [{"id": -1}]})):
            status, answer = server.ask(path, wrong)
            assert status == 400 and "no adapter" in answer["error"]["message"]


def test_code_is_filled_in(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "coder.gguf",
        "llama",
        "F32",
        tokenizer="bpe",
        metadata={f"tokenizer.ggml.fim_{name}_token_id": k for k, name in ((4, "pre"), (5, "suf"), (6, "mid"))},
    )
    with edgellm.load(path) as model, running(models=(str(path),)) as server:
        ids = model.fill_in_prompt("ab", "cd")
        assert [token for token in ids if token in (4, 5, 6)] == [4, 5, 6]
        wanted = model.generate(ids, max_tokens=5, temperature=0, ignore_eos=True).text
        body = {"input_prefix": "ab", "input_suffix": "cd", "n_predict": 5, "temperature": 0, "ignore_eos": True}
        assert server.ask("/infill", body)[1]["content"] == wanted
        asked = {"prompt": "ab", "suffix": "cd", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
        assert server.ask("/v1/completions", asked)[1]["choices"][0]["text"] == wanted
