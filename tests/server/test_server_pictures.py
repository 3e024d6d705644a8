"""Pictures in every protocol and clips in messages: the answer is the library's, the tokens are counted."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
import soundfile
from PIL import Image as Pillow
from serving import running
from tiny_hearing import clip, hearing_file
from tiny_models import tiny_model
from tiny_projectors import OUT, encoded, picture, projector_file

import edgellm

TEXT, N = "What is this?", 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sees")
    projector_file(folder / "mmproj.gguf", "gemma3")
    return tiny_model(folder / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe", context=1024)


def test_a_picture_in_every_protocol(model: Path) -> None:
    data = base64.b64encode(encoded(Pillow.fromarray(picture(64, 64)), "PNG")).decode()
    uri, name = f"data:image/png;base64,{data}", model.stem
    parts: list[dict[str, Any]] = [{"type": "image", "image": uri}, {"type": "text", "text": TEXT}]
    with edgellm.load(model) as local:
        wanted = local.chat([{"role": "user", "content": parts}], max_tokens=N, temperature=0)
        plain = local.chat([{"role": "user", "content": TEXT}], max_tokens=1, temperature=0)
    assert wanted.stats.prompt_tokens >= plain.stats.prompt_tokens + 16
    common: dict[str, Any] = {"model": name, "temperature": 0}
    source = {"type": "base64", "media_type": "image/png", "data": data}
    ollama = {"model": name, "stream": False, "options": {"num_predict": N, "temperature": 0}}
    asked = {
        "/v1/chat/completions": common | {"max_tokens": N, "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": TEXT}]}]},
        "/v1/responses": common | {"max_output_tokens": N, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": uri}, {"type": "input_text", "text": TEXT}]}]},
        "/v1/messages": common | {"max_tokens": N, "messages": [{"role": "user", "content": [
            {"type": "image", "source": source}, {"type": "text", "text": TEXT}]}]},
        "/api/chat": ollama | {"messages": [{"role": "user", "content": TEXT, "images": [data]}]},
        "/api/generate": ollama | {"prompt": TEXT, "images": [data]},
    }  # fmt: skip
    found = {}
    with running(models=(str(model),)) as server:
        assert set(server.ask("/api/show", {"model": name})[1]["capabilities"]) == {"completion", "vision"}
        for path, body in asked.items():
            status, answer = server.ask(path, body)
            assert status == 200, (path, answer)
            usage = answer.get("usage", answer)
            counts = [usage.get(key) for key in ("prompt_tokens", "input_tokens", "prompt_eval_count")]
            cached = usage.get("cache_read_input_tokens") or 0  # of Anthropic's, which counts these apart
            found[path] = next(count for count in counts if count is not None) + cached, _text(answer)
    assert set(found.values()) == {(wanted.stats.prompt_tokens, wanted.text)}, found


def test_a_picture_in_the_result_of_a_tool(model: Path) -> None:
    """A model that sees gets it as one in a message of the user."""
    uri = f"data:image/png;base64,{base64.b64encode(encoded(Pillow.fromarray(picture(64, 64)), 'PNG')).decode()}"
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    counts = []
    with running(models=(str(model),)) as server:
        for parts in ([], [{"type": "image_url", "image_url": {"url": uri}}]):
            result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Here."}, *parts]}
            talk = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
            status, answer = server.ask("/v1/chat/completions", {"messages": talk, "max_tokens": 1})
            assert status == 200, answer
            counts.append(answer["usage"]["prompt_tokens"])
    assert counts[1] >= counts[0] + 16


def test_a_clip_in_a_message(tmp_path: Path) -> None:
    """As the library reads it; what is no clip, or asked of a model that doesn't hear, is refused."""
    hearing_file(tmp_path / "mmproj.gguf", "qwen2a")
    path = tiny_model(tmp_path / "hears.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe", context=1024)
    buffer = io.BytesIO()
    soundfile.write(buffer, clip(0.8), 16000, format="WAV")
    data = base64.b64encode(buffer.getvalue()).decode()
    parts: list[dict[str, Any]] = [
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "text", "text": TEXT},
    ]
    with edgellm.load(path) as local:
        wanted = local.chat([{"role": "user", "content": parts}], max_tokens=N, temperature=0)
    body: dict[str, Any] = {"model": path.stem, "temperature": 0, "max_tokens": N}
    with running(models=(str(path),)) as server:
        status, answer = server.ask("/v1/chat/completions", body | {"messages": [{"role": "user", "content": parts}]})
        assert (status, answer["usage"]["prompt_tokens"], _text(answer)) == (200, wanted.stats.prompt_tokens, wanted.text)
        for broken in ({"data": "QUJD"}, {"data": 3}, {}, "x"):
            asked = [{"role": "user", "content": [{"type": "input_audio", "input_audio": broken}]}]
            status, answer = server.ask("/v1/chat/completions", body | {"messages": asked})
            assert status == 400 and "audio" in answer["error"]["message"]


def _text(answer: dict[str, Any]) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    if "output" in answer:
        return str(answer["output"][0]["content"][0]["text"])
    if "content" in answer:
        return str(answer["content"][0]["text"])
    return str(answer.get("response") or answer["message"]["content"])
