"""The MLX back end on MLX's own library: every architecture, type and memory path against the oracle, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pytest
from streaming_oracle import StreamingOracle
from test_conformance import log_softmax
from tiny_encoders import ENCODERS, writers
from tiny_models import QUANTS, tiny_model

import edgellm
from edgellm.api.embed import compute
from edgellm.arch import load_graph
from edgellm.backends import ACCELERATOR
from edgellm.backends.base import Executable, never
from edgellm.errors import BackendError
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.spec import vectors
from edgellm.weights import Weight, WeightStore

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

from edgellm.backends.mlx import cpu_products, device, matrices  # noqa: E402
from edgellm.backends.mlx.executable import MlxExecutable, MlxStep  # noqa: E402
from edgellm.backends.mlx.filling import load_matrix  # noqa: E402
from edgellm.backends.mlx.groups import SUPERBLOCKS, TRAITS, mlx_bytes, packed  # noqa: E402
from edgellm.backends.mlx.kv_cache import MlxKVCache  # noqa: E402
from edgellm.backends.mlx.octets import DEFINITIONS  # noqa: E402
from edgellm.engine.conversation import FIRST_ROW, Conversation, Logits  # noqa: E402
from edgellm.loading import context as contexts  # noqa: E402
from edgellm.passes import optimise  # noqa: E402

IDS = [1, 5, 9, 20, 33, 7, 2, 60, 41, 12, 3, 88]
EXACT = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")
Floats = npt.NDArray[np.float32]


def error(got: Floats, wanted: Floats) -> float:
    """Largest difference as a share of the largest value."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def reference(path: Path) -> Floats:
    gguf = open_gguf(path)
    _, graph = load_graph(gguf)
    weights = WeightStore(gguf)
    try:
        return Reference(graph, weights).logits(IDS)
    finally:
        weights.close()


@pytest.mark.parametrize("arch", writers())
def test_every_architecture_agrees_with_the_reference(tmp_path: Path, arch: str) -> None:
    """1e-4 is what is asked; float32 throughout gives about 1e-6."""
    path = tiny_model(tmp_path / "m.gguf", arch)
    with edgellm.load(path, backend="mlx", kv_type="f32") as model:
        assert model.backend == "mlx"
        assert error(model.logits(IDS), reference(path)) < 2e-5


@pytest.mark.parametrize("arch", writers())
def test_vectors_may_have_dimensions_of_one_around(tmp_path: Path, arch: str) -> None:
    """As converters leave them: (1, n) of gates, (n, 1) of rates."""
    plain = tiny_model(tmp_path / "plain.gguf", arch)
    gguf = open_gguf(plain)
    _, graph = load_graph(gguf)
    weights = WeightStore(gguf)
    arrays = {name: weights[name].array().reshape(shape) for name, shape in vectors(graph).items()}
    weights.close()
    around = {name: array.reshape(1, *array.shape, 1) for name, array in arrays.items() if array.ndim < 3}
    path = tiny_model(tmp_path / "m.gguf", arch, tensors=around)
    with edgellm.load(path, backend="mlx", kv_type="f32") as model:
        assert error(model.logits(IDS), reference(plain)) < 2e-5


@pytest.mark.parametrize("quant", QUANTS)
def test_every_type_agrees_with_the_reference(tmp_path: Path, quant: str) -> None:
    """Types whose steps are f16 in the file are exact; where a step is a product, its rounding to f16 is what remains."""
    path = tiny_model(tmp_path / "m.gguf", quant=quant)
    wanted = reference(path)
    with edgellm.load(path, backend="mlx", kv_type="f32") as model:
        got = model.logits(IDS)
    assert error(got, wanted) < (2e-5 if quant in EXACT else 1e-2)


@pytest.mark.parametrize("quant", [name for name in QUANTS if name not in ("F32", "F16", "BF16")])
def test_errs_less_than_the_cpu_back_end(tmp_path: Path, quant: str) -> None:
    """KL from the same weights in float32: at most 1.2 times that of the CPU, which rounds activations to 8 bits."""
    path = tiny_model(tmp_path / "m.gguf", quant=quant)
    exact = log_softmax(reference(path))

    def kl(backend: str) -> float:
        with edgellm.load(path, backend=backend, threads=1, kv_type="f32") as model:
            return float(np.mean((np.exp(exact) * (exact - log_softmax(model.logits(IDS)))).sum(-1)))

    assert kl("mlx") <= 1.2 * kl("cpu") + 1e-9


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_quants_are_packed_as_mlx_reads_them(bits: int) -> None:
    quants = np.random.default_rng(bits).integers(0, 1 << bits, (3, 64)).astype(np.uint8)
    ones, zeros = mx.ones((3, 2)), mx.zeros((3, 2))
    read = mx.dequantize(mx.array(packed(quants, bits).view(np.uint32)), ones, zeros, group_size=32, bits=bits)
    np.testing.assert_array_equal(np.array(read), quants)


def a_weight(quant: str, values: Floats) -> Weight:
    return Weight("w", TYPES_BY_NAME[quant], values.shape, CODECS[quant].quantize(values), "model.gguf")


@pytest.mark.parametrize("quant", [*TRAITS, *SUPERBLOCKS, *DEFINITIONS, "MXFP4", "NVFP4", "F16", "BF16"])
def test_sixteen_bit_products_as_on_a_gpu(quant: str) -> None:
    """The same matrices with f16 (MXFP4 and BF16: bf16) operands; MLX's CPU build adds up in them too, so 2 % is its error."""
    rng = np.random.default_rng(1)
    weight = a_weight(quant, rng.standard_normal((24, 256)).astype(np.float32) * np.float32(0.02))
    x = rng.standard_normal((2, 256)).astype(np.float32)
    got = np.array(load_matrix(weight, half=True)(mx.array(x)))
    assert got.dtype == np.float32 and error(got, x @ weight.array().T) < 2e-2


@pytest.mark.parametrize("quant", [*TRAITS, *SUPERBLOCKS, *DEFINITIONS, "MXFP4", "NVFP4", "F32", "F16", "BF16"])
def test_several_rows_get_the_products_of_one(quant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's, with pieces of five rows and a last one of four, beside MLX's own."""
    monkeypatch.setattr(matrices, "CACHED", 5 * 256)
    monkeypatch.setattr(cpu_products, "CACHED", 5 * 256)
    rng = np.random.default_rng(4)
    matrix = load_matrix(a_weight(quant, rng.standard_normal((24, 256)).astype(np.float32)), half=False)
    x = mx.array(rng.standard_normal((40, 256)).astype(np.float32))
    assert error(np.array(matrix(x)), np.array(mx.concatenate([matrix(row[None]) for row in x]))) < 1e-5


@pytest.mark.parametrize("quant", ["Q4_0", "Q6_K", "Q3_K", "MXFP4", "F32", "F16"])
def test_many_rows_of_experts_get_the_products_of_each(quant: str) -> None:
    """In the order of experts, with a row for each token or for each of its experts, by some rows of the matrices."""
    rng = np.random.default_rng(6)
    weight, picked = a_weight(quant, rng.standard_normal((5 * 24, 256)).astype(np.float32)), matrices.Picked(24, 8, 24)
    matrix, parts = load_matrix(weight, half=False), weight.array().reshape(5, 24, 256)[:, 8:]
    experts = np.sort(rng.permuted(np.tile(np.arange(5), (40, 1)), axis=1)[:, :3], axis=1)
    for each in (1, 3):
        x = rng.standard_normal((40, each, 256)).astype(np.float32)
        got = np.array(matrix.gathered(mx.array(x), mx.array(experts), picked))
        assert error(got, (parts[experts] @ np.broadcast_to(x, (40, 3, 256))[..., None])[..., 0]) < 2e-3


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_several_rows_of_groups_as_folders_have_them(bits: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_products, "SMALL", 384 * 21)  # as for large matrices: a thread each for 7 rows
    monkeypatch.setattr(device, "cores", lambda: 3)
    rng = np.random.default_rng(bits)
    w, x = (rng.standard_normal((n, 384)).astype(np.float32) for n in (21, 3))
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        quants, *ends = mx.quantize(mx.array(w), group_size=group, bits=bits)
        arrays = [quants, *(end.astype(dtype) for end in ends)]
        got = np.array(matrices.Groups(arrays, False, "affine", bits, group)(mx.array(x)))
        wide = [quants, *(end.astype(mx.float32) for end in arrays[1:])]
        assert error(got, x @ np.array(mx.dequantize(*wide, group_size=group, bits=bits)).T) < 2e-6, dtype


@pytest.mark.parametrize("quant", [*TRAITS, *SUPERBLOCKS, *DEFINITIONS, "MXFP4", "NVFP4", "F32", "F16", "BF16"])
def test_bytes_are_as_announced(quant: str) -> None:
    """The bytes that `estimate` counts before loading are those of MLX afterwards (but the signs of halves, 4 bytes a column)."""
    weight = a_weight(quant, np.ones((64, 512), np.float32))
    held = sum(array.nbytes for array in load_matrix(weight, half=False).arrays)
    assert held - 4 * 512 <= mlx_bytes(weight.type, 64 * 512) <= held


@pytest.mark.parametrize(
    ("quant", "limit"),
    [("TQ1_0", 1e-6), ("TQ2_0", 1e-6), ("Q1_0", 1e-6), ("Q2_0", 1e-6), ("NVFP4", 1e-6), ("Q2_K", 2e-3), ("Q3_K", 2e-3)],
)
def test_rare_types_agree_with_their_codecs(quant: str, limit: float) -> None:
    """Random quants; d alone is exact in f16, products of d and a scale are rounded to it."""
    rng, codec = np.random.default_rng(3), CODECS[quant]
    raw = rng.integers(0, 256, (24, 512 // codec.n * codec.dtype.itemsize), np.uint8)
    blocks = raw.view(codec.dtype)
    if blocks.dtype["d"] == np.float16:
        blocks["d"] = rng.standard_normal(blocks.shape) * 0.1
    else:
        blocks["d"] &= 0x7F
    if "dmin" in (blocks.dtype.names or ()):
        blocks["dmin"] = rng.standard_normal(blocks.shape) * 0.1
    weight = Weight("w", TYPES_BY_NAME[quant], (24, 512), raw, "model.gguf")
    x = rng.standard_normal((3, 512)).astype(np.float32)
    assert error(np.array(load_matrix(weight, half=False)(mx.array(x))), x @ weight.array().T) < limit


@pytest.mark.parametrize("quant", [*TRAITS, *SUPERBLOCKS, *DEFINITIONS])
def test_no_type_takes_more_than_a_quarter_more(quant: str) -> None:
    kind = TYPES_BY_NAME[quant]
    assert mlx_bytes(kind, 1 << 20) <= 1.25 * (1 << 20) // kind.block * kind.block_bytes


def test_a_step_that_leaves_f16_keeps_its_values() -> None:
    weight = a_weight("Q8_0", np.full((8, 64), 90000.0, np.float32))
    got = np.array(load_matrix(weight, half=False)(mx.ones((1, 64))))
    assert error(got, np.ones((1, 64), np.float32) @ weight.array().T) < 1e-6


def test_rows_past_the_end_of_f16(tmp_path: Path) -> None:
    """With 16-bit products, values of a million between a gate and its matrix still give numbers."""
    up = np.random.default_rng(2).standard_normal((96, 64)).astype(np.float32) * np.float32(3e4)
    path = tiny_model(tmp_path / "m.gguf", quant="Q4_0", tensors={"blk.0.ffn_up.weight": up})
    gguf = open_gguf(path)
    _, graph = load_graph(gguf, 64)
    weights = WeightStore(gguf)
    layout = contexts.plan(graph, 64, 4, ACCELERATOR)
    executable = MlxExecutable(optimise(graph, layout.with_sinks), weights, layout, kv_type="f16", half=True, trace=False)
    ids = np.array(IDS, np.int32)
    got = Conversation.empty(executable).compute(executable, ids, np.arange(len(ids), dtype=np.int32))
    assert np.isfinite(got).all() and error(got, reference(path)) < 0.1
    executable.close()
    weights.close()


def last_logits(conversation: Conversation, executable: Executable, token: npt.NDArray[np.int32]) -> Logits:
    """The logits after one more token."""
    row: Logits = conversation.compute(executable, token, FIRST_ROW)[0]
    return row


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen3", "phi3", "deepseek2"])
@pytest.mark.parametrize("sinks", [0, 4])
def test_ring_far_past_the_context(tmp_path: Path, arch: str, sinks: int) -> None:
    check_ring(tiny_model(tmp_path / "m.gguf", arch), sinks, 160)


@pytest.mark.parametrize(
    ("arch", "metadata"),
    [
        (
            "llama",
            {
                "{arch}.rope.scaling.type": "yarn",
                "{arch}.rope.scaling.factor": 8.0,
                "{arch}.rope.scaling.original_context_length": 16,
            },
        ),
        ("phi3", {"{arch}.rope.scaling.attn_factor": 1.19}),
    ],
)
def test_ring_of_rotations_that_scale(tmp_path: Path, arch: str, metadata: dict[str, str | float]) -> None:
    """Sinks' keys that are turned on keep their magnitude."""
    check_ring(tiny_model(tmp_path / "m.gguf", arch, metadata=metadata), 4, 60)


def test_ring_of_queries_that_grow_with_their_position(tmp_path: Path) -> None:
    """Mistral 3: a query that keys turned on fit has the wrong size for them. The oracle has no such queries; the CPU does."""
    path, ids = tiny_model(tmp_path / "m.gguf", "mistral3"), np.random.default_rng(3).integers(3, 96, 60).astype(np.int32)
    rows = []
    for backend in ("cpu", "mlx"):
        with edgellm.load(path, backend=backend, context=24, kv_type="f32", threads=1) as model:
            executable = model.engine.check()
            conversation = Conversation.empty(executable)
            conversation.compute(executable, ids[:16])
            rows.append([last_logits(conversation, executable, ids[step : step + 1]).copy() for step in range(16, len(ids))])
    assert error(np.array(rows[1]), np.array(rows[0])) < 1e-3


def check_ring(path: Path, sinks: int, tokens: int, context: int = 24) -> None:
    """At every step: chunks, single tokens, and single tokens after a cut, against StreamingLLM computed the long way."""
    ids = np.random.default_rng(3).integers(3, 96, tokens).astype(np.int32)
    gguf = open_gguf(path)
    _, graph = load_graph(gguf, context)
    weights = WeightStore(gguf)
    oracle = StreamingOracle(graph, weights, context, sinks)
    wanted = [oracle.step(int(token)) for token in ids]
    weights.close()
    with edgellm.load(path, backend="mlx", context=context, sinks=sinks, kv_type="f32") as model:
        for row, expected in zip(model.logits(ids), wanted, strict=True):
            assert error(row, expected) < 1e-3
        executable = model.engine.check()
        conversation = Conversation.empty(executable)
        conversation.compute(executable, ids[:16])
        for step in range(16, tokens):
            assert error(last_logits(conversation, executable, ids[step : step + 1]), wanted[step]) < 1e-3, step
        conversation.truncate(tokens - 4)  # a cut: sinks are turned back or on as it needs
        for step in range(tokens - 4, tokens - 2):
            assert error(last_logits(conversation, executable, ids[step : step + 1]), wanted[step]) < 1e-3


def test_traced_steps_are_the_same_and_leave_nothing(tmp_path: Path) -> None:
    """As on a GPU, where steps of one token are compiled; here MLX runs the traced functions as they are."""
    path, context, ids = tiny_model(tmp_path / "m.gguf"), 24, np.random.default_rng(3).integers(3, 96, 60).astype(np.int32)
    gguf = open_gguf(path)
    _, graph = load_graph(gguf, context)
    weights = WeightStore(gguf)
    oracle = StreamingOracle(graph, weights, context, 4)
    wanted = [oracle.step(int(token)) for token in ids]
    mx.clear_cache()
    before = mx.get_active_memory()
    layout = contexts.plan(graph, context, 4, ACCELERATOR)
    mx.disable_compile()
    try:
        executable = MlxExecutable(optimise(graph, layout.with_sinks), weights, layout, kv_type="f32", half=False, trace=True)
        conversation = Conversation.empty(executable)
        conversation.compute(executable, ids[:5])
        for step in range(5, len(ids)):
            assert error(last_logits(conversation, executable, ids[step : step + 1]), wanted[step]) < 1e-3, step
        executable.close()
        weights.close()
        del conversation
    finally:
        mx.enable_compile()
    assert mx.get_active_memory() == before


def test_answers_are_the_cpus(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "qwen3", tokenizer="spm")
    answers = []
    for backend in ("cpu", "mlx"):
        with edgellm.load(path, backend=backend, threads=1, context=48, kv_type="f32") as model:
            answers.append(model.generate("Hello", max_tokens=100, temperature=0, ignore_eos=True).token_ids)
    assert answers[0] == answers[1]


def test_any_thread_may_call(tmp_path: Path) -> None:
    """MLX's streams belong to threads; a conversation does not."""
    path, texts = tiny_model(tmp_path / "m.gguf"), []
    with edgellm.load(path, backend="mlx", context=32) as model:

        def answer() -> None:
            texts.append(model.generate(IDS, max_tokens=40, temperature=0).token_ids)

        for _ in range(3):
            thread = threading.Thread(target=answer)
            thread.start()
            thread.join()
        answer()
    assert len(texts) == 4 and len(set(texts)) == 1


def test_sessions_continue_in_any_thread(tmp_path: Path) -> None:
    """New, forked or read from a file in one thread, computed in another."""
    with edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="mlx", context=64) as model, ThreadPoolExecutor(1) as pool:
        session = model.session()
        session.save(tmp_path / "empty")
        sessions = [model.session(), model.resume(tmp_path / "empty")]
        first = session.generate(IDS, max_tokens=5, temperature=0, ignore_eos=True).token_ids
        session.save(tmp_path / "saved")
        sessions += [session.fork(), model.resume(tmp_path / "saved")]
        for other in sessions:
            assert pool.submit(other.generate, IDS, max_tokens=5, temperature=0, ignore_eos=True).result().token_ids == first


def test_the_next_token_is_computed_while_the_reader_has_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces taken by several threads and calls in between: the same tokens, and no step of one token was waited for."""
    path, waited = tiny_model(tmp_path / "m.gguf"), []
    wait = MlxStep.wait

    def spied(self: MlxStep, stop: Callable[[], bool] = never) -> Mapping[str, Floats]:
        if self._begun is None:
            waited.append(len(self._parts[0].tokens))
        return wait(self, stop)

    monkeypatch.setattr(MlxStep, "wait", spied)
    with edgellm.load(path, backend="mlx", context=32) as model, edgellm.load(path, backend="mlx", context=32) as other:
        wanted = other.generate(IDS, max_tokens=60, temperature=0, ignore_eos=True).token_ids
        assert waited == [len(IDS)]
        stream = model.stream(IDS, max_tokens=60, temperature=0, ignore_eos=True)
        with ThreadPoolExecutor(1) as pool:
            got = [(pool.submit(next, stream).result() if n % 3 else next(stream)).token_id for n in range(40)]
        assert waited == [len(IDS)] * 2
        assert np.array_equal(model.logits(IDS[:5]), other.logits(IDS[:5]))
        assert tuple(got + [piece.token_id for piece in stream]) == wanted
        assert waited == [*[len(IDS)] * 2, 5, 5]
        again = model.generate([*IDS, *wanted[:59]], max_tokens=1, temperature=0, ignore_eos=True)
        assert again.token_ids == wanted[59:] and again.stats.cached_tokens == len(IDS) + 58


def test_memory_is_bounded_and_given_back(tmp_path: Path) -> None:
    """Peak while loading and answering at most 1.25 x the file, for the types whose quants MLX has; after close nothing is left."""
    path = tiny_model(tmp_path / "m.gguf", quant="Q4_K", n_embd=1024, n_ff=4096, n_layers=8, head_dim=64, n_heads=16, n_vocab=512)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with edgellm.load(path, backend="mlx", context=256) as model:
        model.generate(IDS[:2], max_tokens=2, temperature=0)
        peak = mx.get_peak_memory() - before
        size = sum(model.info.bytes_by_type.values())
    assert size > 40e6 and peak <= 1.25 * size
    assert mx.get_active_memory() == before and mx.get_cache_memory() == 0


def test_threads_end_with_the_last_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, products need none."""
    monkeypatch.setattr(cpu_products, "SMALL", 1)
    monkeypatch.setattr(device, "cores", lambda: 3)

    def threads() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name.startswith("edgellm-mlx")]

    with edgellm.load(tiny_model(tmp_path / "m.gguf", quant="Q4_0"), backend="mlx", context=64) as model:
        model.generate(IDS, max_tokens=1)
        while_open = threads()
        assert while_open and all(map(threading.Thread.is_alive, while_open))
    for thread in while_open:
        thread.join(10)
    test_several_rows_of_groups_as_folders_have_them(4, 32, monkeypatch)
    assert not threads()


@pytest.mark.slow
def test_two_models_in_turn_leave_nothing(tmp_path: Path) -> None:
    sizes = {"n_embd": 512, "n_ff": 1024, "n_layers": 4, "head_dim": 64, "n_heads": 8}
    paths = [tiny_model(tmp_path / f"{quant}.gguf", quant=quant, **sizes) for quant in ("Q4_K", "Q8_0")]
    process, resident = psutil.Process(), list[int]()
    for _ in range(50):
        for path in paths:
            with edgellm.load(path, backend="mlx", context=64) as model:
                model.generate(IDS[:2], max_tokens=3, temperature=0)
        resident.append(process.memory_info().rss)
    assert mx.get_active_memory() == mx.get_cache_memory() == 0
    assert resident[-1] <= 1.05 * resident[4]


def settling() -> Iterator[int]:
    """Bytes in use during a twentieth of a second."""
    for _ in range(50):
        yield mx.get_active_memory()
        time.sleep(0.001)


def test_an_endless_answer_needs_no_more_memory(tmp_path: Path) -> None:
    """One token in ten leaves a small array that lives until the next one, so the least of several tokens counts."""
    with edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="mlx", context=32) as model:
        earlier, later = list[int](), list[int]()
        for count, _ in enumerate(model.stream([1], max_tokens=400, seed=1, temperature=1.0, ignore_eos=True)):
            if count % 10 == 0 and count >= 260:
                mx.synchronize()  # the next token's step is under way; its last array may be freed a moment later
                (earlier if count <= 310 else later).append(min(settling()))
    assert len(earlier) == 6 and len(later) == 8 and min(earlier) == min(later)


def test_an_op_without_an_evaluator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.backends.mlx import executable

    monkeypatch.setattr(executable, "OPS", {name: f for name, f in executable.OPS.items() if name != "matmul_glu"})
    with pytest.raises(edgellm.EdgeError, match="no op matmul_glu"):
        edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="mlx")


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, IndexError])
def test_what_mlx_raises_is_a_back_end_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    """In a product of one step, and while a model is loaded."""
    from edgellm.backends.mlx import executable
    from edgellm.backends.mlx.ops import OPS

    def fails(*arguments: object) -> None:
        raise kind("[matmul] shapes differ")

    path, wanted = tiny_model(tmp_path / "m.gguf"), r"MLX could not {}: \[matmul\] shapes differ; use the back end cpu"
    with edgellm.load(path, backend="mlx") as model:
        with monkeypatch.context() as patch, pytest.raises(BackendError, match=wanted.format("compute")):
            patch.setitem(OPS, "rms_norm", fails)
            model.generate(IDS, max_tokens=2)
        assert model.generate(IDS, max_tokens=2).token_ids
    monkeypatch.setattr(executable, "load_matrix", fails)
    with pytest.raises(BackendError, match=wanted.format("load the model")):
        edgellm.load(path, backend="mlx")


def test_auto_takes_the_cpu_here_and_says_nothing(tmp_path: Path) -> None:
    if device.is_apple_silicon():
        pytest.skip("on a Mac auto has a choice")
    with edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="auto") as model:
        assert (model.backend, model.info.place) == ("cpu", "")


@pytest.mark.parametrize("arch", ENCODERS)
def test_embedding_models_agree_with_the_cpu(tmp_path: Path, arch: str) -> None:
    """Texts of several lengths in one step, windows included."""
    path, rng = tiny_model(tmp_path / "m.gguf", arch), np.random.default_rng(1)
    ids = [rng.integers(0, 96, n).astype(np.int32) for n in (20, 1, 33, 7)]
    with edgellm.load(path, backend="mlx") as ours, edgellm.load(path, backend="cpu") as theirs:
        assert ours.backend == "mlx"
        assert error(compute(ours._loaded, ids), compute(theirs._loaded, ids)) < 2e-5


def test_memory_of_documents_counts_all_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MlxKVCache] = []
    new_state = MlxExecutable.new_state
    monkeypatch.setattr(MlxExecutable, "new_state", lambda self: (made.append(new_state(self)), made[-1])[1])
    path = tiny_model(tmp_path / "m.gguf", "qwen3", n_layers=6, context=512, metadata={"{arch}.pooling_type": 3})
    with edgellm.load(path, backend="mlx") as model:
        model.embed(list(range(3, 90)) * 5)
        assert 0 < made[-1].nbytes <= model.info.kv_bytes
