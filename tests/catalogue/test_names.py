"""Names as people type and paste them: which model they mean, what is said about it, and what is suggested where none is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_catalogue import cache, download, refusal

from edgellm.catalogue import registry, resolve
from edgellm.catalogue.names import meant
from edgellm.cli import app
from edgellm.errors import BadCatalogue, ModelNotFound

__all__ = ["cache"]  # a fixture: the home folder and the hub's cache are empty ones


@pytest.mark.parametrize(
    "typed, name",
    [
        ("owner/repo", "hf:owner/repo"),
        ("owner/repo:Q4_K_M", "hf:owner/repo:Q4_K_M"),
        ("hf.co/owner/repo:Q4_K_M", "hf:owner/repo:Q4_K_M"),
        ("huggingface.co/owner/repo", "hf:owner/repo"),
        ("hf://owner/repo", "hf:owner/repo"),
        ("hf:https://huggingface.co/owner/repo", "hf:owner/repo"),
        ("https://huggingface.co/owner/repo/", "hf:owner/repo"),
        ("https://huggingface.co/owner/repo/tree/main", "hf:owner/repo"),
        ("https://huggingface.co/owner/repo/blob/main/sub/m-Q8_0.gguf", "hf:owner/repo:sub/m-Q8_0.gguf"),
        ("https://hf.co/owner/repo/resolve/main/a%20b.gguf?download=true", "hf:owner/repo:a b.gguf"),
        ("https://huggingface.co/owner/repo?show_file_info=m-Q8_0.gguf", "hf:owner/repo:m-Q8_0.gguf"),
        ("http://localhost:8080/owner/repo", "hf:owner/repo"),
        ("qwen3:0.6b", "qwen3-0.6b"),
        ("qwen3:0.6b-q4_K_M", "qwen3-0.6b:Q4_K_M"),
        ("Qwen3-0.6B-Q8_0", "qwen3-0.6b"),
        ("Qwen3-0.6B-Q4_K_M", "qwen3-0.6b:Q4_K_M"),
        ("Qwen3-0.6B-GGUF", "qwen3-0.6b"),
        ("Llama-3.2-1B-Instruct", "llama3.2-1b"),
        ("Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("qwen3-4b-instruct-2507", "qwen3-4b-instruct-2507"),
        ("gemma-3-1b-it", "gemma3-1b"),
        ("mistral:7b", "mistral-7b-v0.3"),
        ("phi3.5", "phi3.5-mini"),
        ("gpt-oss", "gpt-oss-20b"),
        ("https://ollama.com/library/llama3.2:1b", "llama3.2-1b"),
    ],
)
def test_other_spellings(typed: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:8080")
    found, note = meant(typed)
    assert found == name and note == ("" if typed == name else f"{typed} means {name}")
    assert meant(found) == (found, "")  # a second look changes nothing


@pytest.mark.parametrize("name", ["qwen3-0.6b", "Qwen3-0.6B:q8_0", "hf:o/r", "ollama:x", "x.gguf", "a/b.gguf", "a/b/c", "nothing"])
def test_names_that_stay_as_they_are(name: str) -> None:
    assert meant(name) == (name, "")


def test_a_family_means_what_is_here_else_the_smallest(cache: Path) -> None:
    assert meant("llama3.2") == ("llama3.2-1b", "llama3.2 means llama3.2-1b, the smallest; others: llama3.2-3b")
    assert meant("qwen3:latest")[0] == "qwen3-0.6b" and "embedding" not in meant("qwen3")[1]
    here = download(cache, "bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q4_K_M.gguf")
    assert meant("llama3.2") == ("llama3.2-3b", "llama3.2 means llama3.2-3b, which is here; others: llama3.2-1b")
    assert resolve("llama3.2") == resolve("llama3.2:3b") == here


def test_what_is_here_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3:0.6b").touch()
    (tmp_path / "owner").mkdir()
    imported = tmp_path / "edgellm_data/models/llama3.2.gguf"
    imported.parent.mkdir(parents=True)
    imported.touch()
    assert meant("qwen3:0.6b") == ("qwen3:0.6b", "") and meant("llama3.2") == ("llama3.2", "")
    assert "check the path, or write hf:owner/repo" in refusal("owner/repo")


@pytest.mark.parametrize(
    "typed, suggested",
    [
        ("qwen3:14b", "qwen3-8b, qwen3-30b-a3b, qwen3-4b"),
        ("qwen3-2b", "qwen3-1.7b"),
        ("qwen3-0.5b", "qwen3-0.6b"),
        ("llama3:8b", "llama3.1-8b"),
        ("llama-7b", "llama3.1-8b"),
        ("smollm2-100m", "smollm2-135m"),
        ("qwn3-0.6b", "qwen3-0.6b"),
        ("Qwen3-0.6B-Q8_0.gguf", "qwen3-0.6b of the catalogue"),
        ("nomic-embed-text", "nomic-embed-text-v1.5"),
    ],
)
def test_suggestions_are_of_the_right_size(typed: str, suggested: str) -> None:
    assert f"did you mean {suggested}" in refusal(typed)


@pytest.mark.parametrize(
    "typed, said",
    [
        ("https://huggingface.co/o/r/blob/0123abc/x.gguf", "write hf:o/r:x.gguf for that one"),
        ("https://example.com/x.gguf", "download the file"),
        ("https://huggingface.co/datasets/squad", "download the file"),
        ("ollama:qwen3:8b", "fetch it with: ollama pull qwen3:8b"),
        ("owner/repo", "fetch it with: edgellm pull hf:owner/repo"),
    ],
)
def test_refusals_say_what_to_do(typed: str, said: str) -> None:
    assert said in refusal(typed)
    with pytest.raises(ModelNotFound):
        resolve(typed)


def test_commands_say_what_they_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["path", "qwen3:0.6b"]) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == "qwen3:0.6b means qwen3-0.6b"
    assert second.startswith("error: qwen3-0.6b:Q8_0 is not on this machine; fetch it")


def test_a_path_needs_no_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "models.toml")
    registry.shipped.cache_clear()
    try:
        (tmp_path / "model.gguf").touch()
        (tmp_path / "plain").touch()
        monkeypatch.chdir(tmp_path)
        assert resolve(tmp_path / "model.gguf") == tmp_path / "model.gguf" and resolve("plain") == Path("plain")
        with pytest.raises(BadCatalogue, match="install edgellm again"):
            resolve("qwen3-0.6b")
    finally:
        registry.shipped.cache_clear()
