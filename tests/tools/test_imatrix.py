"""`edgellm imatrix`: the sums are those of the model's own values, in llama.cpp's form, and make quantised files better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from story_text import story_text
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.cli.app import run
from edgellm.errors import BadType, OptionError
from edgellm.formats.gguf import open_gguf
from edgellm.formats.writer import GGUFWriter
from edgellm.reference import Reference
from edgellm.tokenizer import build_tokenizer
from edgellm.tools.imatrix import measure
from edgellm.tools.importance import read_importance, write_importance
from edgellm.weights import WeightStore


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny_model(path, "llama", tokenizer="spm")
    return path


def test_sums_are_of_what_matrices_are_multiplied_with(model: Path) -> None:
    text = story_text(4)
    seen: list[tuple[str, int, int]] = []
    measured = measure(model, text, context=32, chunks=3, with_output=True, progress=lambda *report: seen.append(report))
    assert (measured.windows, measured.window) == (3, 32) and [done for _, done, _ in seen] == [1, 2, 3]
    with open_gguf(model) as gguf:
        store, (_, graph) = WeightStore(gguf), load_graph(gguf, 32)
        tokenizer, reference = build_tokenizer(gguf.metadata, file="x"), Reference(graph, store)
        ids = np.array(tokenizer.encode(text))[:96].reshape(3, 32)
        if tokenizer.add_bos:
            ids[:, 0] = tokenizer.bos_id
        embedded = store["token_embd.weight"].array()[ids.reshape(-1)].astype(np.float64)
        eps = gguf.metadata["llama.attention.layer_norm_rms_epsilon"]
        size = np.sqrt(np.square(embedded).mean(axis=-1, keepdims=True) + eps)
        expected = np.square(embedded / size * store["blk.0.attn_norm.weight"].array()).sum(axis=0)
        for name in ("attn_q", "attn_k", "attn_v"):
            sums, counts = measured.sums[f"blk.0.{name}.weight"]
            assert np.allclose(sums[0], expected, rtol=1e-4) and counts.tolist() == [[96]]
        output = store["output.weight"].array().astype(np.float64)  # its inputs, from what comes out
        inputs = [np.linalg.lstsq(output, reference.logits(row).T.astype(np.float64), rcond=None)[0] for row in ids]
        assert np.allclose(measured.sums["output.weight"][0][0], sum(np.square(x).sum(axis=1) for x in inputs), rtol=1e-2)
        matrices = {name for name, shape in store.shapes().items() if len(shape) == 2 and name != "token_embd.weight"}
        assert set(measured.sums) == matrices


def test_the_file_is_llama_cpps(model: Path, tmp_path: Path) -> None:
    measured, path = measure(model, story_text(2), context=16), tmp_path / "imatrix.gguf"
    write_importance(path, measured.sums, datasets=["a.txt"], chunks=measured.windows, chunk_size=16)
    with open_gguf(path) as gguf:
        assert [str(gguf.metadata["general.type"]), *gguf.metadata["imatrix.datasets"]] == ["imatrix", "a.txt"]
        assert (gguf.metadata["imatrix.chunk_count"], gguf.metadata["imatrix.chunk_size"]) == (measured.windows, 16)
        assert list(gguf.tensors)[:2] == ["blk.0.attn_k.weight.in_sum2", "blk.0.attn_k.weight.counts"]
        assert gguf.tensors["blk.0.attn_k.weight.counts"].shape == (1, 1)
    found = read_importance(path)
    assert found.chunks == measured.windows and found.datasets == ("a.txt",)
    for name, (sums, counts) in measured.sums.items():
        assert np.allclose(found.entries[name], sums / counts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("imatrix.datasets", 3),
        ("imatrix.datasets", "a.txt"),
        ("imatrix.datasets", [1.5]),
        ("imatrix.chunk_count", "many"),
        ("imatrix.chunk_count", [1]),
        ("imatrix.chunk_count", float("nan")),
    ],
)
def test_metadata_of_other_types_is_refused(tmp_path: Path, name: str, value: object) -> None:
    keys = {"general.type": "imatrix", name: value}
    writer = GGUFWriter(tmp_path / "i.gguf", keys, [])
    with writer:
        pass
    with pytest.raises(BadType, match=name):
        read_importance(tmp_path / "i.gguf")


def test_options(model: Path) -> None:
    for options, message in (({"context": 8}, "at least 16"), ({"chunks": 0}, "chunks=0"), ({"context": 4000}, "longer text")):
        with pytest.raises(OptionError, match=message):
            measure(model, "Once upon a time", **options)


@pytest.mark.parametrize(("arch", "message"), [("bert", "embedding model"), ("gpt2", "learned 128 positions")])
def test_models_that_it_cannot_read_with(tmp_path: Path, arch: str, message: str) -> None:
    tiny_model(tmp_path / "tiny.gguf", arch)
    with pytest.raises(OptionError, match=message):
        measure(tmp_path / "tiny.gguf", story_text(40), context=256)


def test_the_command_and_what_it_is_for(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out, small = tmp_path / "text.txt", tmp_path / "imatrix.gguf", tmp_path / "small.gguf"
    text.write_text(story_text(4), encoding="utf-8")
    command = ["imatrix", str(model), str(text), str(out), "--context", "32"]
    assert run(command) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n" and "windows of 32 tokens" in printed.err
    assert run(command) == 2 and "--force" in capsys.readouterr().err
    for own in (model, text):
        before = own.read_bytes()
        assert run([*command[:3], str(own), "--context", "32", "--force"]) == 2 and "the source itself" in capsys.readouterr().err
        assert own.read_bytes() == before
    assert run(["quantize", str(model), str(small), "Q4_0", "--imatrix", str(out)]) == 0
    with open_gguf(small) as gguf:
        assert gguf.metadata["quantize.imatrix.dataset"] == str(text)
