"""Clips in prompts: files read, features, rows of each encoder, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from tiny_hearing import KINDS, clip, hearing, hearing_file
from tiny_models import tiny_model
from tiny_projectors import LAYERS, OUT, damaged

import edgellm
from edgellm.arch.audio import load_encoder, names
from edgellm.backends.cpu import executable
from edgellm.chat import audio
from edgellm.chat.mel import windows
from edgellm.engine.prompts import Watch
from edgellm.errors import AudioError, BadHParam, EdgeError, ModelClosed, OptionError
from edgellm.formats.gguf import open_gguf
from edgellm.loading.audio_encoder import AudioEncoder
from edgellm.loading.encoder import Rows
from edgellm.reference import Reference
from edgellm.weights import WeightStore

SECONDS = (0.3, 1.7, 3.1)


def error(a: Rows, b: Rows) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


def written(samples: npt.NDArray[np.float32], rate: int = 16000, kind: str = "WAV", **options: Any) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, **options)
    return buffer.getvalue()


class ByReference(AudioEncoder):
    """An encoder whose graphs the reference computes."""

    def run(self, number: int, each: Any, *rest: Any) -> list[Rows]:
        with open_gguf(self.path) as gguf:
            graph = load_encoder(gguf)[2][number]
            reference = Reference(graph, WeightStore(gguf))
            return [reference.encoded(one)["rows"] for one in each]


def test_every_projector_type_is_tried_here() -> None:
    assert names() == sorted(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("weights", ["F32", "F16"])
def test_the_cpu_computes_what_the_reference_does(tmp_path: Path, kind: str, weights: str) -> None:
    path = hearing_file(tmp_path / "mmproj.gguf", kind, kind_of=weights)
    encoder, reference = AudioEncoder(path, threads=2), ByReference(path)
    for seconds in SECONDS:
        assert error(encoder.encode(clip(seconds)).rows, reference.encode(clip(seconds)).rows) < 5e-6
    reference.close()
    encoder.close()
    with pytest.raises(ModelClosed):
        encoder.encode(clip(1))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_do_not_depend_on_threads_or_on_what_was_encoded_before(tmp_path: Path, kind: str) -> None:
    path = hearing_file(tmp_path / "mmproj.gguf", kind)
    one, two = AudioEncoder(path, threads=1), AudioEncoder(path, threads=2)
    first = one.encode(clip(1.7)).rows
    two.encode(clip(3.1))
    assert np.array_equal(first, two.encode(clip(1.7)).rows)
    one.close()
    two.close()


def test_a_clip_is_the_same_in_every_file(tmp_path: Path) -> None:
    """WAV of floats and 16 bits, FLAC, two channels, bytes, data URIs; MP3 and Ogg are near."""
    samples = clip(1.2)
    wav = written(samples, subtype="FLOAT")
    (tmp_path / "clip.wav").write_bytes(wav)
    uri = "data:audio/wav;base64," + base64.b64encode(wav).decode()
    both = np.stack([samples, samples], axis=1)
    for source in (tmp_path / "clip.wav", str(tmp_path / "clip.wav"), wav, uri, samples, both, written(both, subtype="FLOAT")):
        assert np.array_equal(audio.read(audio.Audio(source)), samples)
    for data in (written(samples, subtype="PCM_16"), written(samples, kind="FLAC")):
        assert np.abs(audio.read(audio.Audio(data)) - samples).max() < 1e-4
    for kind in ("MP3", "OGG"):
        near = audio.read(audio.Audio(written(samples, kind=kind)))
        n = min(len(near), len(samples))
        assert n > 0.9 * len(samples) and np.corrcoef(near[:n], samples[:n])[0, 1] > 0.9


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_resampling_keeps_what_is_heard(rate: int) -> None:
    """A tone of 1 kHz stays the same, and one above 8 kHz is gone."""

    def tone(hertz: int, n: int, at: int) -> npt.NDArray[np.float32]:
        return np.sin(2 * np.pi * hertz * np.arange(n) / at).astype(np.float32)

    found = audio.read(audio.Audio(tone(1000, rate, rate), rate))
    assert len(found) == 16000 and np.abs(found - tone(1000, 16000, 16000))[500:-500].max() < 2e-3
    if rate > 20000:
        assert np.abs(audio.read(audio.Audio(tone(9500, rate, rate), rate)))[500:-500].max() < 2e-3


def test_broken_audio(tmp_path: Path) -> None:
    wav = written(clip(0.5))
    (tmp_path / "empty.wav").touch()
    (tmp_path / "song.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    cases: list[tuple[Any, str]] = [
        (tmp_path / "none.wav", "can't read the audio clip"),
        (tmp_path / "empty.wav", "it is empty"),
        (tmp_path / "song.m4a", "its format is M4A"),
        (b"not audio at all", "can't be read as audio"),
        (written(np.zeros(0, np.float32)), "has no samples"),
        (np.zeros(0, np.float32), "has no samples"),
        (np.full(100, np.nan, np.float32), "NaN"),
        (np.zeros(3600 * 16000 + 1, np.float32), "longer than 60 minutes"),
        ("https://example.com/a.wav", "remote address"),
        ("data:audio/wav,xyz", "data URI"),
        ("data:audio/wav;base64,x", "base64"),
    ]
    for source, message in cases:
        with pytest.raises(AudioError, match=message):
            audio.read(audio.Audio(source))
    for wrong in (3, None, np.zeros(5, np.int16), np.zeros((2, 2, 2), np.float32)):
        with pytest.raises(OptionError):
            audio.read(audio.Audio(wrong))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(OptionError, match="rate"):
        audio.read(audio.Audio(clip(1), rate=0))
    rng = np.random.default_rng(0)
    for number in range(200):
        damaged = bytearray(wav if number % 2 else written(clip(0.1), kind="FLAC"))
        for place in rng.integers(0, min(len(damaged), 200), 4):
            damaged[place] = rng.integers(256)
        with contextlib.suppress(EdgeError):
            assert np.isfinite(audio.read(audio.Audio(bytes(damaged[: rng.integers(1, len(damaged))])))).all()


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 96), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damaged_projector_files(tmp_path: Path, kind: str, seeds: range) -> None:
    """Typed errors, or rows that are numbers."""
    data, path, refused = hearing_file(tmp_path / "mmproj.gguf", kind).read_bytes(), tmp_path / "bad.gguf", 0
    for seed in seeds:
        path.write_bytes(damaged(data, seed))
        try:
            encoder = AudioEncoder(path, threads=1)
        except EdgeError:
            refused += 1
            continue
        if seed % 8 < 4:
            try:
                assert np.isfinite(encoder.encode(clip(0.3)).rows).all()
            except EdgeError:
                refused += 1
        encoder.close()
    assert refused >= len(seeds) // 3


def test_windows_of_a_long_clip(tmp_path: Path) -> None:
    """Each is encoded by itself; with positions of 2 seconds a clip of 5 has three."""
    path = hearing_file(tmp_path / "mmproj.gguf", "qwen2a")
    encoder = AudioEncoder(path, threads=2)
    samples, shares = clip(5), list[tuple[int, int]]()
    parts = [encoder.encode_window(window, lambda: False) for window in windows(samples, encoder.spec)]
    rows = encoder.encode(samples, watch=Watch(progress=lambda *done: shares.append(done))).rows
    assert [len(part) for part in parts] == [50, 50, 25] and np.array_equal(rows, np.concatenate(parts))
    assert shares == sorted(shares) and shares[-1] == (500, 500)
    assert len(encoder.encode(clip(2.005)).rows) == 50, "one frame makes no row of two"
    assert len(encoder.encode(clip(0.001)).rows) == 1
    encoder.close()


def test_a_model_that_hears(tmp_path: Path) -> None:
    with hearing(tmp_path) as model:
        assert model.info.vision is None and model.info.audio is not None and model.info.audio.projector_type == "qwen2a"
        rows = model.embed_audio(clip(1.7))
        assert rows.shape == (42, OUT)
        wav = written(clip(1.7), subtype="FLOAT")
        data = base64.b64encode(wav).decode()
        parts = [{"type": "audio", "audio": wav}, {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]
        parts += [{"type": "audio", "audio": edgellm.Audio(clip(1.7))}]
        text = {"type": "text", "text": "What is said?"}
        answers = [model.chat([{"role": "user", "content": [part, text]}], max_tokens=4, temperature=0) for part in parts]
        assert len({answer.text for answer in answers}) == 1 and answers[1].stats.cached_tokens > 42
        other = model.chat([{"role": "user", "content": [{"type": "audio", "audio": clip(1.7, 1)}, text]}], max_tokens=1)
        assert other.stats.cached_tokens < answers[0].stats.prompt_tokens - 42
        assert len(model.logits(["a ", edgellm.Audio(clip(1.7))])) >= 43
        for broken in ({"type": "audio"}, {"type": "input_audio", "input_audio": {}}):
            with pytest.raises(OptionError, match="has no audio"):
                model.chat([{"role": "user", "content": [broken]}])
        with pytest.raises(AudioError, match="base64"):
            model.chat([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "?"}}]}])
        with pytest.raises(OptionError, match="takes no images"):
            model.embed_image(np.zeros((64, 64, 3), np.uint8))
    with edgellm.load(tmp_path / "m.gguf", mmproj="none") as deaf, pytest.raises(OptionError, match="takes no audio"):
        deaf.embed_audio(clip(1))


def test_a_projector_that_cannot_be_used(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT)
    hearing_file(tmp_path / "mmproj.gguf", "qwen2a", num_mel_bins=None)
    with edgellm.load(model) as loaded:
        assert loaded.info.audio is None and "num_mel_bins" in loaded.info.place
    with pytest.raises(BadHParam):
        edgellm.load(model, mmproj=tmp_path / "mmproj.gguf")


@pytest.mark.parametrize("kind", ["voxtral", "gemma4a"])
def test_transcribing_on_asyncio(tmp_path: Path, kind: str) -> None:
    """With a prompt without a template, and in a chat."""
    with hearing(tmp_path, kind) as model:
        expected = model.transcribe(clip(1.0), max_tokens=4)
        found = asyncio.run(model.atranscribe(clip(1.0), max_tokens=4))
        assert (found.text, found.token_ids) == (expected.text, expected.token_ids)
        asked = asyncio.run(model.atranscribe(clip(1.0), prompt="In French:", max_tokens=4))
        assert asked.token_ids == model.transcribe(clip(1.0), prompt="In French:", max_tokens=4).token_ids
    with edgellm.load(tiny_model(tmp_path / "deaf.gguf", tokenizer="bpe"), mmproj="none") as model, pytest.raises(OptionError):
        asyncio.run(model.atranscribe(clip(1.0)))


@pytest.mark.parametrize("kind", ["voxtral", "qwen3a"])
def test_a_clip_is_given_up_between_any_two_parts_of_its_encoder(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check ends the work when it is asked to, and reports how far the clip was."""
    monkeypatch.setattr(executable, "PART", 100_000)
    hearing_file(tmp_path / "mmproj.gguf", kind)
    encoder, samples = AudioEncoder(tmp_path / "mmproj.gguf", threads=1), clip(0.8)
    checks, seen, last = 0, list[tuple[int, int]](), 0

    def stop() -> bool:
        nonlocal checks
        checks += 1
        return checks == last

    wanted = encoder.encode(samples, watch=Watch(stop, lambda *at: seen.append(at))).rows
    whole, reported = checks, list(seen)
    assert whole > LAYERS and reported == sorted(reported) and reported[-1][0] == reported[-1][1]
    for last in range(1, whole + 1, max(1, whole // 6)):
        encoder._kept.clear()
        checks = 0
        seen.clear()
        with pytest.raises(AudioError, match="cancelled"):
            encoder.encode(samples, watch=Watch(stop, lambda *at: seen.append(at)))
        assert checks == last and seen == reported[: len(seen)] and len(seen) < len(reported)
    encoder._kept.clear()
    checks, last = 0, 0
    assert np.array_equal(encoder.encode(samples, watch=Watch(stop)).rows, wanted)
    encoder.close()
