"""Words of clips at /v1/audio/transcriptions: through OpenAI's client, and forms that are wrong."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import soundfile
from serving import Running, running
from tiny_hearing import clip, hearing_file
from tiny_models import tiny_model
from tiny_projectors import OUT

import edgellm

PATH, N = "/v1/audio/transcriptions", 8
FORM = {"content-type": "multipart/form-data; boundary=cut"}


def wav() -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, clip(0.8), 16000, format="WAV")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def hears(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hears")
    hearing_file(folder / "mmproj.gguf", "qwen2a")
    return tiny_model(folder / "hears.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe", context=1024)


@pytest.fixture(scope="module")
def server(hears: Path) -> Iterator[Running]:
    with running(models=(str(hears), "guide"), max_tokens=N) as started:
        yield started


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_the_words_are_the_librarys(hears: Path, client: openai.OpenAI) -> None:
    with edgellm.load(hears) as model:
        wanted = {prompt: model.transcribe(wav(), prompt=prompt, max_tokens=N) for prompt in (None, "Who speaks?")}
    for prompt, heard in wanted.items():
        asked: dict[str, Any] = {"model": "hears", "file": ("../../talk.wav", wav()), **({"prompt": prompt} if prompt else {})}
        plain = client.audio.transcriptions.create(**asked)
        assert plain.text == heard.text and plain.usage is not None and plain.usage.type == "tokens"
        assert (plain.usage.input_tokens, plain.usage.output_tokens) == (heard.stats.prompt_tokens, heard.stats.generated_tokens)
        assert client.audio.transcriptions.create(**asked, response_format="text") == heard.text + "\n"
        full = client.audio.transcriptions.create(**asked, response_format="verbose_json", language="en")
        assert (full.text, full.language, round(full.duration, 3)) == (heard.text, "en", 0.8)
        events = list(client.audio.transcriptions.create(**asked, stream=True))
        assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == heard.text
        assert events[-1].type == "transcript.text.done" and events[-1].text == heard.text


def test_errors_are_the_clients_own(client: openai.OpenAI, server: Running) -> None:
    for model, file, more, kind, named in (
        ("gone", wav(), {}, openai.NotFoundError, "gone"),
        ("guide", wav(), {}, openai.BadRequestError, "takes no audio"),
        ("hears", b"not a clip", {}, openai.BadRequestError, "audio"),
        ("hears", wav(), {"response_format": "srt"}, openai.BadRequestError, "response_format"),
        ("hears", wav(), {"timestamp_granularities": ["word"]}, openai.BadRequestError, "timestamp_granularities"),
        ("hears", wav(), {"stream": True, "temperature": 9e9}, openai.BadRequestError, "temperature"),
    ):
        with pytest.raises(kind, match=named):
            client.audio.transcriptions.create(model=model, file=("talk.wav", file), **more)
    assert server.busy() == 0


def field(name: str, value: bytes, *more: str) -> bytes:
    head = "\r\n".join([f'content-disposition: form-data; name="{name}"', *more])
    return b"--cut\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n"


END = b"--cut--\r\n"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", FORM, 400),
        (END, FORM, 400),
        (field("file", b"x"), FORM, 400),  # without an end
        (field("file", b"") + END, FORM, 400),
        (field("model", b"hears") + END, FORM, 400),
        (field("file", b"x").replace(b"name", b"nam") + END, FORM, 400),
        (field("file", b"x").replace(b"\r\n\r\n", b"\r\n") + END, FORM, 400),
        (field("model", b"\xff") + field("file", b"x") + END, FORM, 400),
        (b"".join(field(f"f{n}", b"x") for n in range(100)) + END, FORM, 400),
        (b"\r\n--cut" * 1_000_000, FORM, 400),
        (field("file", b"x", "x-long: " + "a" * 5000) + END, FORM, 400),
        (field("file", b"x") + END, {"content-type": "multipart/form-data"}, 400),
        (field("file", b"x") + END, {"content-type": 'multipart/form-data; boundary="'}, 400),
        (field("file", b"x") + END, {"content-type": "application/json"}, 415),
        (field("file", b"x") + END, FORM | {"origin": "http://evil.example"}, 403),
        (field("file", b"x") + END, FORM | {"host": "evil.example"}, 403),
        (field("file", b"x") + END, FORM | {"content-length": str(10**15)}, 413),
    ],
)
def test_wrong_forms_are_refused(server: Running, body: bytes, headers: dict[str, str], status: int) -> None:
    found, answer = server.ask(PATH, body or b"\r\n", headers=headers)
    assert found == status and answer["error"]["message"].endswith("."), answer


def test_forms_are_read_where_clips_are_and_nowhere_else(server: Running) -> None:
    for path in ("/v1/chat/completions", "/api/chat", "/v1/embeddings"):
        assert server.ask(path, field("file", b"x") + END, headers=FORM)[0] in (404, 415)


def test_the_capability_is_listed(server: Running) -> None:
    assert [server.ask("/api/show", {"model": name})[1]["capabilities"] for name in ("hears", "guide")] == [
        ["completion", "audio"],
        ["completion"],
    ]


def test_a_key_is_asked_for() -> None:
    with running(api_key="secret") as server:
        assert server.ask(PATH, field("file", wav()) + END, headers=FORM)[0] == 401
