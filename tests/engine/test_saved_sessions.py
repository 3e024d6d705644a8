"""Sessions that are saved and resumed: the same answers, nothing computed again, and every damage is a typed error."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from fake_backend import toys
from tiny_models import tiny_model

import edgellm
from edgellm.engine.saved_session import HEAD
from edgellm.errors import SessionError
from edgellm.sampling import SamplingKeywords

GREEDY: SamplingKeywords = {"temperature": 0.0, "ignore_eos": True}
PROMPT = [1, 40, 50, 60, 70, 80, 90, 100]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("saved") / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1)


@pytest.mark.parametrize("tokens", [5, 60, 700])
def test_another_process_continues(path: Path, tmp_path: Path, tokens: int) -> None:
    """In the context, past it, and past the ring."""
    with toys().load(path, context=32, sinks=2) as model, model.session() as session:
        said = [*PROMPT, *session.generate(PROMPT, max_tokens=tokens, **GREEDY).token_ids, 7]
        session.save(tmp_path / "s")
        wanted = session.generate(said, max_tokens=40, **GREEDY)
    loader = toys()
    with loader.load(path, context=32, sinks=2) as model, model.resume(tmp_path / "s") as session:
        assert session.n_tokens == len(said) - 2
        got = session.generate(said, max_tokens=40, **GREEDY)
        assert got.token_ids == wanted.token_ids and got.stats.cached_tokens == len(said) - 2 and loader.toy.log[0] == 2
        assert got.stats.cached_tokens == wanted.stats.cached_tokens


def test_an_empty_session_and_one_that_is_written(path: Path, tmp_path: Path) -> None:
    with toys().load(path, context=32) as model:
        model.session().save(tmp_path / "empty")
        assert model.resume(tmp_path / "empty").n_tokens == 0
        session = model.session()
        stream = session.stream(PROMPT, max_tokens=9, **GREEDY)
        next(stream)
        session.save(tmp_path / "s")
        wanted = [piece.token_id for piece in stream]
        resumed = model.resume(tmp_path / "s").generate([*PROMPT, stream.result.token_ids[0]], max_tokens=8, **GREEDY)
        assert list(resumed.token_ids) == wanted


@pytest.mark.parametrize(
    "header", [b"[]", b'"a"', b"5", b"null", b"[" * 1500 + b"]" * 1500, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"\xff"]
)
def test_a_header_that_is_no_object_is_reported(path: Path, tmp_path: Path, header: bytes) -> None:
    with toys().load(path, context=32) as model, model.session() as session:
        session.generate(PROMPT, max_tokens=2, **GREEDY)
        session.save(tmp_path / "s")
        data = (tmp_path / "s").read_bytes()[:-32]
        magic, version, n_header, n_ids, n_state = HEAD.unpack(data[: HEAD.size])
        head = HEAD.pack(magic, version, len(header), n_ids, n_state)
        body = head + header + data[HEAD.size + n_header :]
        (tmp_path / "s").write_bytes(body + hashlib.sha256(body).digest())
        with pytest.raises(SessionError, match="is damaged"):
            model.resume(tmp_path / "s")


@pytest.mark.parametrize("size", [8, 512])
def test_exchanged_parts_are_reported(path: Path, tmp_path: Path, size: int) -> None:
    """Two words that follow each other, and two blocks: the same bytes in another order."""
    file = tmp_path / "s"
    with toys().load(path, context=32) as model, model.session() as session:
        session.generate(PROMPT, max_tokens=20, **GREEDY)
        session.save(file)
        whole = file.read_bytes()
        at = next(at for at in range(512, len(whole) - 2 * size, size) if whole[at : at + size] != whole[at + size : at + 2 * size])
        file.write_bytes(whole[:at] + whole[at + size : at + 2 * size] + whole[at : at + size] + whole[at + 2 * size :])
        with pytest.raises(SessionError, match="checksum"):
            model.resume(file)


def test_every_damage_is_reported(path: Path, tmp_path: Path) -> None:
    chance, file = random.Random(5), tmp_path / "s"
    with toys().load(path, context=32) as model, model.session() as session:
        session.generate(PROMPT, max_tokens=20, **GREEDY)
        session.save(file)
        whole = file.read_bytes()
        for n in range(1000):
            damaged = bytearray(whole)
            match n % 4:
                case 0:
                    del damaged[chance.randrange(len(whole)) :]
                case 1:
                    damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
                case 2:
                    damaged += chance.randbytes(chance.randrange(1, 50))
                case 3:
                    damaged[: chance.randrange(1, 60)] = chance.randbytes(chance.randrange(60))
            file.write_bytes(damaged)
            if damaged != whole:
                with pytest.raises(SessionError, match="s: "):
                    model.resume(file)
        file.write_bytes(path.read_bytes())
        for wrong in (file, tmp_path, tmp_path / "nowhere"):
            with pytest.raises(SessionError):
                model.resume(wrong)


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen35", "mamba"])
@pytest.mark.parametrize("context", [256, 768, 2048])
def test_another_context_resumes_what_fits_it(arch: str, context: int, tmp_path: Path) -> None:
    file = tiny_model(tmp_path / "m.gguf", arch, "F16", tokenizer="bpe", context=2048)
    with edgellm.load(file, context=512) as model, model.session() as session:
        said = [*PROMPT, *session.generate(PROMPT, max_tokens=40, **GREEDY).token_ids]
        session.save(tmp_path / "s")
    with edgellm.load(file, context=context) as model:
        wanted = model.generate(said, max_tokens=10, logprobs=2, **GREEDY)
        with model.resume(tmp_path / "s") as session:
            got = session.generate(said, max_tokens=10, logprobs=2, **GREEDY)
    assert got.token_ids == wanted.token_ids and got.logprobs == wanted.logprobs and got.stats.cached_tokens >= len(said) - 2


def test_a_context_that_the_tokens_do_not_fit_is_refused(path: Path, tmp_path: Path) -> None:
    with toys().load(path, context=128) as model, model.session() as session:
        session.generate(PROMPT, max_tokens=50, **GREEDY)
        session.save(tmp_path / "fits")
        session.generate(PROMPT, max_tokens=900, **GREEDY)
        session.save(tmp_path / "slid")
    for name, context in (("fits", 32), ("slid", 64), ("slid", 2048)):
        with (
            toys().load(path, context=context) as model,
            pytest.raises(SessionError, match=f"context of 128 tokens.* of {context} .*context=128"),
        ):
            model.resume(tmp_path / name)


def test_other_models_and_options_are_reported(path: Path, tmp_path: Path) -> None:
    with toys().load(path, context=32) as model:
        model.session().save(tmp_path / "s")
    with toys().load(path, context=32, sinks=2) as model, pytest.raises(SessionError, match="sinks 4 instead of 2"):
        model.resume(tmp_path / "s")
    other = tiny_model(tmp_path / "other.gguf", "llama", "Q8_0", tokenizer="spm", n_layers=1)
    with toys().load(other, context=32) as model, pytest.raises(SessionError, match="another model"):
        model.resume(tmp_path / "s")


def test_a_session_is_resumed_on_the_cpu(tmp_path: Path) -> None:
    path, prompt = tiny_model(tmp_path / "m.gguf", "llama", "Q4_0", n_layers=2), list(range(1, 30))
    with edgellm.load(path, backend="cpu", context=40) as model, model.session() as session:
        said = [*prompt, *session.generate(prompt, max_tokens=400, **GREEDY).token_ids]
        session.save(tmp_path / "s")
        wanted = session.generate(said, max_tokens=20, **GREEDY)
    with edgellm.load(path, backend="cpu", context=40) as model, model.resume(tmp_path / "s") as session:
        got = session.generate(said, max_tokens=20, **GREEDY)
        assert got.token_ids == wanted.token_ids and got.stats.cached_tokens == wanted.stats.cached_tokens == len(said) - 1
