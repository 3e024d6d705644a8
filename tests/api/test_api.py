"""The public names as a program uses them: what importing costs, loading and its errors, chat, and the ring against the paper."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import Loader, references, toys
from streaming_oracle import StreamingOracle
from tiny_models import tiny_model

import edgellm
from edgellm.arch import load_graph
from edgellm.errors import BadHParam, BadVocab, EdgeError, ModelNotFound, NoTokenizer, OptionError, TemplateError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.weights import WeightStore

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% if loud %}!{% endif %}"
)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_brings_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import edgellm; print(*(m for m in set(sys.modules) - before))"
    assert {name.split(".")[0] for name in run(code).split()} - sys.stdlib_module_names == {"edgellm"}
    code = "import sys, edgellm; edgellm.load; print(*sys.modules)"
    assert not {"numba", "llvmlite", "mlx", "jinja2", "rich", "typer"} & set(run(code).split())


def test_public_names() -> None:
    for name in edgellm.__all__:
        assert getattr(edgellm, name).__name__ == name and name in dir(edgellm)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = edgellm.nonsense
    assert issubclass(OptionError, edgellm.EdgeError)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "model.gguf"
    return tiny_model(path, "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE, n_layers=1)


@pytest.fixture
def loader() -> Loader:
    return toys()


@pytest.fixture
def model(loader: Loader, path: Path) -> Iterator[edgellm.Model]:
    with loader.load(path, context=64) as model:
        yield model


def test_an_answer_needs_no_module_of_other_uses(model: edgellm.Model, path: Path) -> None:
    model.generate("a", max_tokens=2, temperature=0)  # compiles what the kernel cache lacks
    code = f"""
import sys, edgellm
with edgellm.load({os.fspath(path)!r}, context=64) as model:
    model.generate("a b a b", max_tokens=2, temperature=0)
print(*sys.modules)"""
    needless = {"asyncio", "ssl", "numba", "numpy.ma", "jinja2", "rich", "typer", "huggingface_hub", "llguidance", "sentencepiece"}
    assert not needless & set(run(code).split())


OF_OTHER_USES = (  # modules of pictures, audio, forms, calls, vectors, names and programs, with all that lies in their packages
    *("arch.vision", "arch.audio", "api.media", "chat.images", "chat.audio", "loading.encoder", "passes.images"),
    *("api.forms.form", "api.tools", "api.rounds", "chat.families", "api.infill", "tokenizer.fill_in"),
    *("api.embed", "api.rerank", "catalogue.names", "catalogue.entries", "engine.state_store"),
    *("checkpoints.folder", "server", "cli", "bench", "tools", "reference"),
)


def test_loading_a_text_model_imports_no_module_of_other_uses(model: edgellm.Model, path: Path) -> None:
    names = [f"edgellm.{name}" for name in OF_OTHER_USES]
    assert all(importlib.util.find_spec(name) for name in names)
    code = f"""
import sys, edgellm
with edgellm.load({os.fspath(path)!r}, context=64) as model:
    model.generate("a b a b", max_tokens=2, temperature=0)
print(*sys.modules)"""
    imported = run(code).split()
    assert [each for each in imported if each in names or each.startswith(tuple(f"{name}." for name in names))] == []


def test_running_a_local_file_imports_nothing_for_the_network(model: edgellm.Model, path: Path) -> None:
    model.generate("a", max_tokens=1, temperature=0)
    command = [sys.executable, "-X", "importtime", "-m", "edgellm", "run", os.fspath(path), "a", "-n", "1", "--context", "64"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr
    modules = {line.rpartition("|")[2].strip() for line in found.splitlines()}
    assert "edgellm.catalogue.importing" in modules and not {"http.client", "ssl", "edgellm.catalogue.download"} & modules


def test_load_options_are_checked(path: Path) -> None:
    for name, value in (
        ("threads", 0),
        ("threads_batch", 0),
        ("threads", -2),
        ("threads", 1.5),
        ("threads", True),
        ("threads", 10**6),
        ("context", 5),
        ("sinks", -1),
        ("kv_type", "q3"),
        ("backend", "cuda"),
        ("context", 2**40),
    ):
        with pytest.raises(OptionError, match=name):
            edgellm.load(path, **{name: value})  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ModelNotFound, match="nowhere"):
        edgellm.load(path.with_name("nowhere.gguf"))
    with pytest.raises(OptionError, match="None is not the name or path"):
        edgellm.load(None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"context=1000000000 needs .* GiB"):
        edgellm.load(path, context=10**9)


def test_whole_numbers_of_numpy_are_whole_numbers(loader: Loader, path: Path) -> None:
    n = np.arange(64)
    with loader.load(path, context=n[32], sinks=n[2], threads=n[1]) as model:
        assert (model.info.context, model.info.sinks) == (32, 2)
        assert len(model.generate([1, 2], max_tokens=n[3], temperature=0, ignore_eos=True).token_ids) == 3
        for wrong in (n[3].astype(float), np.True_, n):
            with pytest.raises(OptionError, match="max_tokens"):
                model.generate([1, 2], max_tokens=wrong)
        tokenizer: Any = model.tokenizer
        for method in (tokenizer.encode, tokenizer.token_id, tokenizer.encode_continuation):
            with pytest.raises(OptionError, match="takes a text"):
                method(None)
        for call in (
            lambda: tokenizer.decode(["a"]),
            lambda: tokenizer.decode([1.5]),
            lambda: tokenizer.piece(b"x"),
            lambda: tokenizer.token_text("x"),
        ):
            with pytest.raises(OptionError, match="is not a token id"):
                call()
        for ids in ("a", b"a", 3):
            with pytest.raises(OptionError, match="is not a list of token ids"):
                tokenizer.decode(ids)


def test_a_model_tells_what_it_is(loader: Loader, model: edgellm.Model, path: Path) -> None:
    info = model.info
    assert (info.path, info.name, info.architecture, info.n_layers) == (path, "tiny llama", "llama", 1)
    assert (info.context, info.context_train, info.sinks, info.kv_type) == (64, 128, 4, "f16")
    assert set(info.bytes_by_type) == {"Q8_0", "F32"} and info.file_bytes == sum(info.bytes_by_type.values())
    assert info.has_tokenizer and info.has_template and info.backend == "toy" and info.threads == 1
    assert info.kv_bytes == 2 * 2 * (16 + 16) * (32 + 256)  # the page of the sinks and one of the ring
    assert model.n_vocab == info.n_vocab == model.tokenizer.vocab_size and "model.gguf" in repr(model)
    assert (model.path, model.architecture, model.backend, model.threads, model.has_template) == (path, "llama", "toy", 1, True)


def test_progress_is_reported(loader: Loader, path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    loader.load(path, progress=lambda what, done, of: seen.append((what, done, of))).close()
    assert seen == [("kernels", 1, 1)]


def test_the_default_context(loader: Loader, tmp_path: Path) -> None:
    for trained, wanted in ((96, 96), (100_000, 100_000), (10**6, 131072)):
        with loader.load(tiny_model(tmp_path / f"{trained}.gguf", n_layers=1, context=trained)) as model:
            assert model.context == wanted and model.info.context_train == trained


def test_text_prompts(model: edgellm.Model) -> None:
    ids = model.tokenizer.encode("hello world")
    by_text, by_ids = (model.generate(prompt, max_tokens=8, temperature=0) for prompt in ("hello world", ids))
    assert by_text.token_ids == by_ids.token_ids and by_text.stats.prompt_tokens == len(ids)
    with pytest.raises(OptionError, match="prompt is empty"):
        model.generate("")
    with pytest.raises(OptionError, match="prompt has the token id 99999"):
        model.generate([99999])
    with pytest.raises(OptionError, match=r"max_token is not an option of generation; did you mean max_tokens\?"):
        model.generate([1], max_token=3)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="topk is not an option"):
        model.generate("hello", topk=3)  # type: ignore[call-arg]  # wrong on purpose
    control = model.tokenizer.token_id("<|im_end|>")
    assert control not in model.tokenizer.encode("<|im_end|>")


def test_the_files_sampling_defaults(loader: Loader, tmp_path: Path) -> None:
    metadata = {"general.sampling.temp": 0.0, "general.sampling.top_k": 7}
    with loader.load(tiny_model(tmp_path / "own.gguf", n_layers=1, metadata=metadata)) as model:
        assert model.generate([1, 2], max_tokens=9).token_ids == model.generate([1, 2], max_tokens=9).token_ids, "greedy"
        resolved = model.sampling_options(top_k=3)
        assert (resolved.options.top_k, resolved.options.temperature) == (3, 0.0)
        assert [resolved.sources[name] for name in ("top_k", "temperature", "min_p")] == ["user", "model", "default"]
    with pytest.raises(BadHParam, match=r"general\.sampling\.top_p"):
        loader.load(tiny_model(tmp_path / "bad.gguf", n_layers=1, metadata={"general.sampling.top_p": 3.0}))


def test_chat(model: edgellm.Model) -> None:
    messages = [{"role": "user", "content": "hello <|im_end|> world"}]
    answer = model.chat(messages, max_tokens=6, temperature=0)
    end = model.tokenizer.token_id("<|im_end|>")
    prompt = model.tokenizer.encode("<|endoftext|><|im_start|>user\nhello ", add_special=False, parse_special=True)
    prompt += model.tokenizer.encode("<|im_end|> world", add_special=False)
    prompt += model.tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", add_special=False, parse_special=True)
    assert sum(token == end for token in prompt) == 1, "what the user says is not a control token"
    assert model.generate(prompt, max_tokens=6, temperature=0).token_ids == answer.token_ids
    stream = model.chat(messages, stream=True, max_tokens=6, temperature=0)
    assert "".join(stream) == answer.text == stream.result.text
    loud = model.chat(messages, max_tokens=6, temperature=0, template_options={"loud": True})
    assert loud.stats.prompt_tokens == answer.stats.prompt_tokens + 1


def test_a_conversation_reads_only_its_new_turn(model: edgellm.Model) -> None:
    messages = [{"role": "user", "content": "hello"}]
    first = model.chat(messages, max_tokens=4, temperature=0, ignore_eos=True)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "the world"}]
    second = model.chat(messages, max_tokens=4, temperature=0)
    assert second.stats.cached_tokens >= first.stats.prompt_tokens > 5


@pytest.mark.parametrize(
    ("messages", "error"),
    [("hello", OptionError), (None, OptionError), ([3], TemplateError), ([{"role": "user", "content": object()}], TemplateError)],
)
def test_bad_conversations(model: edgellm.Model, messages: object, error: type[EdgeError]) -> None:
    with pytest.raises(error):
        model.chat(messages)  # type: ignore[call-overload]  # wrong on purpose


def test_chat_without_a_template(loader: Loader, tmp_path: Path) -> None:
    with loader.load(tiny_model(tmp_path / "m.gguf", tokenizer="bpe", n_layers=1)) as model:
        assert not model.has_template
        answer = model.chat([{"role": "user", "content": "hello"}], max_tokens=3, temperature=0, ignore_eos=True)
        assert len(answer.token_ids) == 3
    with loader.load(tiny_model(tmp_path / "ids.gguf", n_layers=1)) as model, pytest.raises(NoTokenizer):
        model.chat([{"role": "user", "content": "hello"}])


def test_a_broken_vocabulary_is_refused_at_once(loader: Loader, tmp_path: Path) -> None:
    broken = {"tokenizer.ggml.eot_token_id": 10**6}
    with pytest.raises(BadVocab, match="eot_token_id"):
        loader.load(tiny_model(tmp_path / "broken.gguf", tokenizer="spm", n_layers=1, metadata=broken))


def test_a_tokenizer_that_cannot_be_run_leaves_ids(loader: Loader, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.tokenizer.build.KINDS", {})
    with loader.load(path) as model:
        assert len(model.generate([1, 2], max_tokens=2).token_ids) == 2 and not model.info.has_tokenizer
        with pytest.raises(Unsupported, match="gpt2"):
            model.generate("text")


def test_load_tokenizer(path: Path, tmp_path: Path) -> None:
    tokenizer = edgellm.load_tokenizer(path)
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"
    with pytest.raises(NoTokenizer):
        edgellm.load_tokenizer(tiny_model(tmp_path / "ids.gguf", n_layers=1))


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_model_that_nobody_closes(path: Path) -> None:
    loader = toys()
    model = loader.load(path, context=32)
    model.generate([1], max_tokens=1)
    assert mapped(path) and not loader.toy.closed
    del model
    assert loader.toy.closed and not mapped(path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_closing_unmaps_the_file_and_ends_threads(path: Path) -> None:
    loader, threads = references(), {*threading.enumerate()}
    model = loader.load(path, context=32)
    stream = model.stream([1, 2, 3], max_tokens=4, ignore_eos=True)
    next(stream)
    model.generate([1, 2, 3], max_tokens=4)
    assert mapped(path)
    model.close()
    loader.executables.clear()
    assert not mapped(path) and {*threading.enumerate()} <= threads, "although the stream and the model are still here"
    with pytest.raises(OptionError):
        references().load(path, context=1)
    assert not mapped(path), "nothing stays of a failed load"


@pytest.mark.parametrize(("arch", "sizes"), [("llama", {}), ("gemma3", {"window": 8, "n_layers": 3}), ("qwen2", {})])
def test_the_ring_is_streaming_llm(tmp_path: Path, arch: str, sizes: dict[str, Any]) -> None:  # Any: sizes of a Shape
    """A generation of six contexts: every step's logits equal those of a cache that keeps sinks and window unrotated.

    4e-5 relative to the largest logit: the sums run in another order, in float32.
    """
    path = tiny_model(tmp_path / "m.gguf", arch, "F32", **sizes)
    seen: list[np.ndarray] = []

    def watch(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        seen.append(logits.copy())
        return logits

    prompt = list(range(40, 75))
    with references().load(path, context=20, sinks=3) as model:
        result = model.generate(prompt, max_tokens=100, seed=1, processors=[watch])
    assert result.stats.evicted_tokens == 35 + 100 - 20
    with open_gguf(path) as gguf:
        graph = load_graph(gguf, 20)[1]
        oracle = StreamingOracle(graph, WeightStore(gguf), 20, 3)
        wanted = [oracle.step(token) for token in [*prompt, *result.token_ids]][34:134]
    np.testing.assert_allclose(np.stack(seen), np.stack(wanted), atol=4e-5 * np.abs(wanted).max())


def test_logits_are_the_references(path: Path) -> None:
    ids = [1, 5, 9, 200, 3, 77, 40, 40, 2]
    with references().load(path, context=64, sinks=4) as model:
        rows = model.logits(np.array(ids))
    with open_gguf(path) as gguf:
        wanted = Reference(load_graph(gguf)[1], WeightStore(gguf)).logits(ids)
    np.testing.assert_allclose(rows, wanted, atol=2e-5 * np.abs(wanted).max())


def test_errors_and_the_version_are_there_without_anything_heavy() -> None:
    from importlib.metadata import version

    from edgellm import errors

    assert set(errors.__all__) <= set(edgellm.__all__) and set(edgellm.__all__) <= set(dir(edgellm))
    assert all(getattr(edgellm, name) is getattr(errors, name) for name in errors.__all__)
    assert edgellm.__version__ == version("edgellm")
    for name in edgellm.__all__:
        assert getattr(edgellm, name).__name__ == name


@pytest.mark.parametrize("tokens, expected", [(0, 0.0), (1, 4.0), (3, 20.0)])
def test_speed_of_short_answers(tokens: int, expected: float) -> None:
    assert edgellm.Stats(5, 0, 0, tokens, 0.25, 0.2, 0.1).tokens_per_second == expected
