"""LoRA adapters: the logits of merged weights, one conversation's alone, and every wrong file refused by name."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tiny_adapters import factors_for, matrices, write
from tiny_models import tiny_model

import edgellm
from edgellm.arch import load_graph
from edgellm.engine import state_store
from edgellm.errors import BadHParam, BadTensorInfo, FormatError, OptionError, SessionError, ShapeMismatch, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.gguf import open_gguf
from edgellm.loading.adapters import AdaptedWeights, AdapterSets, narrowed
from edgellm.passes.lora import SCALES, adaptable
from edgellm.reference import Reference
from edgellm.weights import WeightStore

Floats = npt.NDArray[np.float32]
IDS = [1, 40, 7, 60, 33, 12, 50, 5, 41]
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def merged(base: Path, out: Path, parts: Sequence[tuple[Mapping[str, tuple[Floats, Floats]], float]]) -> Path:
    """The model with the products added to its weights: a copy of the file with other bytes, which are F32."""
    shutil.copyfile(base, out)
    with open_gguf(base) as gguf:
        places = {name: (info.offset, info.nbytes) for name, info in gguf.tensors.items()}
    data = np.memmap(out, np.uint8, "r+")
    weights = matrices(base)
    for factors, strength in parts:
        for name, (a, b) in factors.items():
            product = a @ b.T if name == "token_embd.weight" else b @ a
            weights[name] = weights[name] + np.float32(strength) * product
    for name, array in weights.items():
        at, n = places[name]
        data[at : at + n] = np.ascontiguousarray(array, np.float32).view(np.uint8).reshape(-1)
    data.flush()
    return out


def close(got: Floats, wanted: Floats, by: float = 1e-4) -> bool:
    return bool(np.abs(got - wanted).max() <= by * np.abs(wanted).max())


CASES = [(4, 8.0, 1.0), (16, 16.0, -0.5), (8, None, 2.5), (5, 3.0, 1.0)]


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("arch, tied", [("llama", False), ("qwen2", True), ("gemma3", True), ("qwen3", False)])
def test_logits_of_merged_weights(tmp_path: Path, arch: str, tied: bool, backend: str) -> None:
    """One adapter, then two at once, of other ranks and scales, on all matrices, embeddings and output."""
    base = tiny_model(tmp_path / "m.gguf", arch, "F32", tied=tied)
    weights = matrices(base)
    cases = CASES if backend == "cpu" else CASES[1:3]
    files, parts = [], []
    for k, (rank, alpha, scale) in enumerate(cases):
        factors = factors_for(weights, rank, k)
        files.append((write(tmp_path / f"{k}.gguf", factors, alpha, arch), scale))
        parts.append((factors, scale * (alpha / rank if alpha else 1.0)))
    options: dict[str, Any] = {"backend": backend, "kv_type": "f32"}
    with edgellm.load(base, **options) as model:
        plain = model.logits(IDS)
    for chosen in ([0], [1], [0, 1]):
        out = merged(base, tmp_path / "merged.gguf", [parts[k] for k in chosen])
        with edgellm.load(out, **options) as model:
            wanted = model.logits(IDS)
        with edgellm.load(base, adapters=[files[k] for k in chosen], **options) as model:
            got = model.logits(IDS)
        assert close(got, wanted) and not close(got, plain), chosen


@pytest.mark.parametrize("kind", ["F16", "Q4_0"])
def test_types_of_factors(tmp_path: Path, kind: str) -> None:
    base = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0")
    weights = matrices(base)
    names = [name for name in weights if "attn" in name]
    factors = factors_for(weights, 32, 3, names)
    file = write(tmp_path / "a.gguf", factors, 32, "llama", kind)
    rounded = {
        name: tuple(CODECS[kind].dequantize(CODECS[kind].quantize(half)).reshape(half.shape) for half in pair)
        for name, pair in factors.items()
    }
    same = write(tmp_path / "b.gguf", rounded, 32, "llama")  # type: ignore[arg-type]  # pairs
    with edgellm.load(base, adapters=[file]) as model, edgellm.load(base, adapters=[same]) as other:
        assert np.array_equal(model.logits(IDS), other.logits(IDS))


def test_each_conversation_has_its_own(tmp_path: Path) -> None:
    """Sessions with other adapters in the same steps get the bits that they get alone."""
    base = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0")
    weights = matrices(base)
    first, second = (write(tmp_path / f"{k}.gguf", factors_for(weights, 8, k), 16, "llama") for k in (1, 2))
    wishes: list[Any] = [None, [(first, 1.0)], [(first, -0.5), (second, 2.0)], []]
    with edgellm.load(base) as model:
        bare = model.generate(IDS, max_tokens=12, **GREEDY).token_ids
    with edgellm.load(base, adapters=[(first, 0.25), (second, 0.0)], parallel=4) as model:
        alone = [model.session(adapters=wish).generate(IDS, max_tokens=12, **GREEDY).token_ids for wish in wishes]
        assert len(set(alone)) == 4 and alone[3] == bare
        assert model.generate(IDS, max_tokens=12, **GREEDY).token_ids == alone[0]
        assert [each[1] for each in model.adapters] == [0.25, 0.0] and model.adapters[0][0] == first.resolve()
        for _ in range(2):  # each answer with its own, whichever were used before, also in a session with others
            for wish, wanted in zip(wishes, alone, strict=True):
                answer = model.generate(IDS, adapters=wish, max_tokens=12, **GREEDY)
                assert answer.token_ids == wanted
                with model.session(adapters=wishes[1]) as session:
                    session.generate(IDS, max_tokens=2, **GREEDY)
                    own = alone[1] if wish is None else wanted
                    assert session.generate(IDS, adapters=wish, max_tokens=12, **GREEDY).token_ids == own
        assert answer.stats.cached_tokens > 0
        sessions = [model.session(adapters=wish) for wish in wishes]
        streams = [session.stream(IDS, max_tokens=12, **GREEDY) for session in sessions]
        together = [[piece.token_id for piece in row if piece] for row in zip(*streams, strict=False)]
        assert together is not None
        for stream, wanted in zip(streams, alone, strict=True):
            stream.drain()
            assert stream.result.token_ids == wanted
        sessions[1].save(tmp_path / "s")
        with model.resume(tmp_path / "s", adapters=wishes[1]) as session:
            more = [*IDS, *alone[1], 3]
            again = session.generate(more, max_tokens=5, **GREEDY)
            assert again.token_ids == sessions[1].generate(more, max_tokens=5, **GREEDY).token_ids
        with pytest.raises(SessionError, match="adapters"):
            model.resume(tmp_path / "s")


def test_what_is_no_adapter_of_this_model(tmp_path: Path) -> None:
    base = tiny_model(tmp_path / "m.gguf", "llama", "F32")
    weights, name = matrices(base), "blk.0.attn_q.weight"
    good = factors_for(weights, 4, 0, [name])
    a, b = good[name]

    def refused(
        kind: type[Exception],
        said: str,
        factors: Mapping[str, Any] = good,
        alpha: float | None = 8,
        arch: str = "llama",
        **metadata: Any,
    ) -> None:
        file = write(tmp_path / "a.gguf", factors, alpha, arch, **metadata)
        with pytest.raises(kind, match=said):
            edgellm.load(base, adapters=[file])

    refused(Unsupported, "a.gguf.*'qwen2' model, and this one is llama", arch="qwen2")
    others: tuple[dict[str, Any], ...] = ({"general.type": "model"}, {"adapter.type": "control"})
    for other in others:
        refused(Unsupported, "not a LoRA adapter", **other)
    refused(Unsupported, r"blk.9.attn_q.weight.lora_a.*does not have", {"blk.9.attn_q.weight": (a, b)})
    refused(Unsupported, "output_norm.weight.lora_a", {"output_norm.weight": (a, b)})
    refused(ShapeMismatch, rf"{name}.lora_a.*\(64, 32\)", {name: (a, b[:32])})
    refused(ShapeMismatch, rf"{name}.lora_a.*rank 4, and its lora_b 3", {name: (a, b[:, :3])})
    refused(FormatError, f"{name}.lora_b.*NaN", {name: (a, np.full_like(b, np.nan))})
    refused(BadHParam, "adapter.lora.alpha", alpha=float("inf"))
    refused(Unsupported, "adapter.alora.invocation_tokens.*aLoRA", **{"adapter.alora.invocation_tokens": [1, 2]})
    file = write(tmp_path / "half.gguf", good, 8, "llama")
    data = file.read_bytes().replace(b"attn_q.weight.lora_b", b"attn_k.weight.lora_b")
    file.write_bytes(data)
    with pytest.raises(BadTensorInfo, match=r"lora_[ab].*is missing"):
        edgellm.load(base, adapters=[file])
    file.write_bytes(data.replace(b"lora_b", b"lora_c"))
    with pytest.raises(Unsupported, match=r"lora_c.*neither"):
        edgellm.load(base, adapters=[file])
    with pytest.raises(edgellm.EdgeError):
        edgellm.load(base, adapters=[tmp_path / "nowhere.gguf"])
    for wrong in ([(file, float("nan"))], [5], [(file, "1")]):
        with pytest.raises(OptionError, match="adapters="):
            edgellm.load(base, adapters=wrong)  # type: ignore[arg-type]  # what is tested
    with edgellm.load(base) as model, pytest.raises(OptionError, match="loaded without any"):
        model.session(adapters=[("a.gguf", 1.0)])
    with edgellm.load(base, adapters=[write(tmp_path / "g.gguf", good, 8, "llama")]) as model:
        with pytest.raises(OptionError, match="was not loaded"):
            model.session(adapters=[("other.gguf", 1.0)])
        with pytest.raises(OptionError, match="was not loaded"):
            model.generate(IDS, adapters=[("other.gguf", 1.0)])


@pytest.mark.parametrize("name", ["blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"])
def test_matrices_of_heads_are_refused(tmp_path: Path, name: str) -> None:
    base = tiny_model(tmp_path / "m.gguf", "deepseek2", "F32")
    factors = {name: (np.ones((4, 32), np.float32), np.ones((64, 4), np.float32))}
    with pytest.raises(Unsupported, match=f"{name}.lora_a.*of heads.*merge"):
        edgellm.load(base, adapters=[write(tmp_path / "a.gguf", factors, 8, "deepseek2")])


def experts_and_factors(base: Path, rank: int, seed: int) -> tuple[dict[str, Floats], dict[str, tuple[Floats, Floats]]]:
    """The matrices of experts, and random factors for them and for the router."""
    gguf, rng = open_gguf(base), np.random.default_rng(seed)
    store = WeightStore(gguf)
    weights = {
        name: store[name].array().copy()
        for name in store.names()
        if name.endswith(("_exps.weight", "ffn_gate_inp.weight")) and len(store[name].shape) > 1
    }
    store.close()
    factors = {}
    for name, array in weights.items():
        *experts, rows, columns = array.shape
        a, b = (
            rng.standard_normal(shape).astype(np.float32) * np.float32(0.2)
            for shape in ((*experts, rank, columns), (*experts, rows, rank))
        )
        factors[name] = a, b
    return weights, factors


def logits(path: Path, backend: str, adapters: Sequence[tuple[Path, float]] = ()) -> Floats:
    """Of a prompt and of a single token."""
    if backend != "reference":
        with edgellm.load(path, backend=backend, kv_type="f32", adapters=adapters) as model:
            return np.concatenate([model.logits(IDS), model.logits(IDS[:1])])
    gguf = open_gguf(path)
    keys, graph = load_graph(gguf)
    sets = AdapterSets(adapters, graph, keys.architecture) if adapters else None
    weights = AdaptedWeights(gguf, sets.weights(graph, gguf)) if sets else WeightStore(gguf)
    graph = sets.graph(graph) if sets else graph
    found = np.concatenate([Reference(graph, weights).logits(ids)[-1:] for ids in (IDS, IDS[:1])])
    weights.close()
    return found


@pytest.mark.parametrize("backend", ["reference", "cpu", "mlx"])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "llama4", "granite_swa"])
def test_logits_of_merged_experts(tmp_path: Path, arch: str, backend: str) -> None:
    """Each expert has factors of its own; two adapters of other ranks at once; prompts and single tokens."""
    sizes: dict[str, Any] = {"n_experts": 4} if arch == "granite_swa" else {}
    base = tiny_model(tmp_path / "m.gguf", arch, "F32", **sizes)
    out, files = shutil.copyfile(base, tmp_path / "merged.gguf"), []
    with open_gguf(base) as gguf:
        places = {name: (info.offset, info.nbytes) for name, info in gguf.tensors.items()}
    weights: dict[str, Floats] = {}
    for k, (rank, alpha, scale) in enumerate(CASES[2:]):
        stored, factors = experts_and_factors(base, rank, k)
        assert len(stored) >= 4 and len({array.ndim for array in stored.values()}) == 2
        for name, (a, b) in factors.items():
            weights[name] = weights.get(name, stored[name]) + np.float32(scale * (alpha / rank if alpha else 1)) * (b @ a)
        files.append((write(tmp_path / f"{k}.gguf", factors, alpha, arch), scale))
    data = np.memmap(out, np.uint8, "r+")
    for name, array in weights.items():
        data[places[name][0] : sum(places[name])] = np.ascontiguousarray(array, np.float32).view(np.uint8).reshape(-1)
    data.flush()
    wanted = logits(out, backend)
    assert close(logits(base, backend, files), wanted) and not close(logits(base, backend), wanted)


@pytest.mark.parametrize("backend", ["reference", "cpu", "mlx"])
@pytest.mark.parametrize(
    ("arch", "own", "sizes"),
    [("llama", False, {"biases": True}), ("qwen3moe", False, {}), ("talkie", True, {}), ("gemma4", True, {"n_experts": 4})],
)
def test_scales_beside_weights(tmp_path: Path, arch: str, own: bool, sizes: dict[str, Any], backend: str) -> None:
    """A scale that is a part of its weight, as NVFP4's, is none of an adapter's, which was trained beside the product of both. One
    that is the model's own is: what it multiplies is the adapted product.
    """
    base, rng = tiny_model(tmp_path / "base.gguf", arch, "F32", **sizes), np.random.default_rng(0)
    gguf = open_gguf(base)
    store = WeightStore(gguf)
    weights = {
        name: store[name].array().copy()
        for name in adaptable(load_graph(gguf)[1])
        if name.startswith("blk.") and (name.removesuffix("weight") + "scale" in gguf.tensors if own else "gate_inp" not in name)
    }
    store.close()
    assert len(weights) >= (2 if own else 14)
    scales, merged, factors = dict[str, Floats](), dict[str, Floats](), dict[str, tuple[Floats, Floats]]()
    for name, array in weights.items():
        *experts, rows, columns = array.shape
        a, b = (rng.normal(0, 0.2, shape).astype(np.float32) for shape in ((*experts, 4, columns), (*experts, rows, 4)))
        factors[name] = a, b
        scale = rng.uniform(0.2, 0.6, experts or 1).astype(np.float32)
        if not own:
            scales[name.removesuffix("weight") + "scale"] = scale
        merged[name] = (1 if own else scale.reshape(-1, *[1] * len(experts), 1)) * array + b @ a
    file = write(tmp_path / "a.gguf", factors, 4, arch)
    scaled = tiny_model(tmp_path / "scaled.gguf", arch, "F32", tensors=scales, **sizes)
    wanted = logits(tiny_model(tmp_path / "merged.gguf", arch, "F32", tensors=merged, **sizes), backend)
    assert close(logits(scaled, backend, [(file, 1.0)]), wanted) and not close(logits(scaled, backend), wanted)


def test_factors_of_other_experts_are_refused(tmp_path: Path) -> None:
    base = tiny_model(tmp_path / "m.gguf", "qwen3moe", "F32")
    name = "blk.0.ffn_up_exps.weight"
    a, b = experts_and_factors(base, 4, 0)[1][name]
    for pair, said in (
        ((a[1:], b[1:]), "is for a weight of"),
        ((a[0], b[0]), "2 dimensions; this factor has 3"),
        ((a, b[1:]), "is for a weight of"),
        ((a[:, 1:], b), "rank 3, and its lora_b 4"),
    ):
        with pytest.raises(ShapeMismatch, match=f"{name}.lora_a.*{said}"):
            edgellm.load(base, adapters=[write(tmp_path / "a.gguf", {name: pair}, 8, "qwen3moe")])


def test_conformance_shapes(shared: Path, tmp_path: Path) -> None:
    """On the shapes of real families, with F32 bases."""
    seen = 0
    for family in ("llama", "qwen2", "gemma3"):
        bases = [file for file in sorted((shared / "conformance" / family).glob("*.gguf")) if "F32" in file.name]
        for base in bases[:1]:
            weights = matrices(base)
            factors = factors_for(weights, 16, 1)
            with open_gguf(base) as gguf:
                arch = str(gguf.metadata["general.architecture"])
            file = write(tmp_path / "a.gguf", factors, 8, arch)
            with edgellm.load(merged(base, tmp_path / "merged.gguf", [(factors, 1.5 * 0.5)]), kv_type="f32") as model:
                wanted = model.logits(IDS)
            with edgellm.load(base, adapters=[(file, 1.5)], kv_type="f32") as model:
                assert close(model.logits(IDS), wanted), family
            seen += 1
    assert seen == 3


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.cli import app
    from edgellm.cli.options import adapters

    assert adapters(["a.gguf", "C:\\b.gguf", "c.gguf:-0.5", "d:x:2"]) == [
        ("a.gguf", 1.0),
        ("C:\\b.gguf", 1.0),
        ("c.gguf", -0.5),
        ("d:x", 2.0),
    ]
    base = tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="bpe")
    file = write(tmp_path / "a.gguf", factors_for(matrices(base), 4, 0), 8, "llama")
    answers = []
    for scale in ("", ":0", ":3"):
        monkeypatch.setattr(sys, "stdin", None)
        lora = ["--lora", f"{file}{scale}"] if scale else []
        assert app.run(["run", str(base), "hello", "-n", "8", "--temp", "0", *lora]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != answers[2]
    assert app.run(["run", str(base), "hello", "--lora", str(base)]) == 3 and "not a LoRA adapter" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, -0.5, 2.0**-20], "F16"),
        ([1.0, 2.0**-60], "BF16"),
        ([1.0, 1e5], "F32"),
        ([1.0, 0.1], "F32"),
        ([65504.0], "F16"),
        ([131072.0], "BF16"),
    ],
)
def test_factors_are_kept_in_16_bits_where_those_hold_them(values: list[float], kind: str) -> None:
    array = np.array([values], np.float32)
    weight = narrowed("x", array, "file")
    assert weight.type.name == kind and np.array_equal(weight.array(), array)


@pytest.mark.parametrize(("values", "kind"), [([1.0, 0.1], "F16"), ([1e5, 0.1], "F32"), ([2.0**-16, 1e-6], "F32")])
def test_factors_beside_quantised_weights_are_rounded_to_16_bits_that_hold_them(values: list[float], kind: str) -> None:
    array = np.array([values], np.float32)
    weight = narrowed("x", array, "file", rounds=True)
    assert weight.type.name == kind and np.allclose(weight.array(), array, rtol=2.0**-11, atol=0)


@pytest.mark.parametrize(("quant", "kind"), [("Q8_0", "F16"), ("F32", "F32"), ("F16", "F32")])
def test_only_quantised_weights_have_rounded_factors(tmp_path: Path, quant: str, kind: str) -> None:
    base = tiny_model(tmp_path / "m.gguf", "llama", quant)
    weights = matrices(base)
    names = [name for name in weights if name.startswith("blk.")]
    file = write(tmp_path / "a.gguf", factors_for(weights, 8, 3, names), 8, "llama")
    with open_gguf(base) as gguf:
        _, graph = load_graph(gguf)
        found = AdapterSets([file], graph, "llama").weights(graph, gguf)
        factors = [weight for name, weight in found.items() if name != SCALES]
        assert len(factors) > len(names) and {weight.type.name for weight in factors} == {kind}
    with edgellm.load(base, adapters=[file]) as model:
        got = model.logits(IDS)
    half = write(tmp_path / "b.gguf", factors_for(weights, 8, 3, names), 8, "llama", "F16")
    with edgellm.load(base, adapters=[half]) as model:
        assert np.array_equal(got, model.logits(IDS)) == (kind == "F16")


def test_saved_beginnings_are_those_of_the_same_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "user_cache", lambda: tmp_path / "cache")
    base = tiny_model(tmp_path / "m.gguf", "llama", "F32")
    adapter = write(tmp_path / "a.gguf", factors_for(matrices(base), 4, 1), 8, "llama")
    prompt = [IDS[k % 9] for k in range(300)]

    def answer(adapters: Any = None, cache: str = "1G") -> edgellm.Generation:
        with edgellm.load(base, context=512, adapters=adapters, prefix_cache=cache) as model:
            return model.generate(prompt, max_tokens=4, **GREEDY)

    for adapters in (None, [(adapter, 1.0)], [(adapter, 0.5)]):
        first, again = answer(adapters), answer(adapters)
        assert first.stats.cached_tokens == 0 and again.stats.cached_tokens == 299, adapters
        assert again.token_ids == first.token_ids == answer(adapters, "off").token_ids
