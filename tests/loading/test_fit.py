"""Memory and speed of a model estimated from its header: against the model itself, and against limits of every kind."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hub_server import LocalHub, cut, ignore_range, status
from tiny_hearing import hearing, hearing_file
from tiny_models import QUANTS, tiny_model
from tiny_projectors import OUT, projector_file

import edgellm
from edgellm.api import load
from edgellm.arch import load_graph
from edgellm.backends import HOST
from edgellm.backends.base import BackendOptions
from edgellm.backends.cpu.backend import LOOKUP_BYTES
from edgellm.backends.cpu.executable import CpuExecutable
from edgellm.backends.cpu.state import CpuState
from edgellm.bench import fit as fitting
from edgellm.bench import speed, speed_probe
from edgellm.catalogue import machine as machines
from edgellm.catalogue.connection import HttpLimits
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.machine import Memory, free_memory, memory
from edgellm.catalogue.registry import entries
from edgellm.catalogue.remote import open_remote
from edgellm.cli import app
from edgellm.errors import DownloadError, FormatError, NotEnoughMemory, OptionError
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.gguf_prefix import Prefix, gguf_from_prefixes
from edgellm.loading import context as contexts
from edgellm.loading import estimate
from edgellm.loading.encoder_memory import memory_of
from edgellm.memory.kv_types import KV_TYPES
from edgellm.passes import optimise
from edgellm.synthetic_weights import ProbeWeights, SyntheticWeights
from edgellm.weights import WeightStore

PLENTY = Memory(1 << 40)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("EDGELLM_CONFIG", "EDGELLM_DATA", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "m.gguf", "llama", "Q8_0", tokenizer="bpe", context=4096)


def needed(gguf: GGUFFile, context: int = 512, kv_type: str = "f16", threads: int = 2) -> estimate.Need:
    graph = load_graph(gguf, context)[1]
    layout = contexts.plan(graph, context, 4, HOST)
    return estimate.need(HOST, gguf, optimise(graph, layout.with_sinks), layout, BackendOptions(kv_type, threads))


def full_state(executable: CpuExecutable) -> CpuState:
    """A conversation that has written every slot."""
    state = executable.new_state()
    for index, slots in enumerate(one.slots for one in executable.layout.classes):
        spans = np.zeros((slots, 4), np.int32)
        spans[:, 0] = np.arange(slots)
        state.kv.write_to(index, spans, np.zeros((slots, 3), np.int64))
    return state


# --- memory --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma3", "phi3", "gpt2"])
def test_the_plan_of_a_header_is_the_plan_of_the_model(arch: str, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", arch, "Q4_0", tokenizer="bpe", context=256)
    with open_gguf(path) as gguf:
        need = needed(gguf, 256, threads=1)
    with edgellm.load(path, context=256, threads=1) as model:
        executable = model.engine.check()
        assert isinstance(executable, CpuExecutable)
        assert need.kv == model.info.kv_bytes == full_state(executable).nbytes
        assert need.work == executable._plan.nbytes > executable._plan.arena.nbytes
    assert 0 < need.weights <= path.stat().st_size and need.total == need.weights + need.kv + need.work + need.base


def test_more_context_threads_and_precision_need_more(model: Path) -> None:
    with open_gguf(model) as gguf:
        small, long, wide, threads = (needed(gguf, *how) for how in ((512,), (4096,), (512, "f32"), (512, "f16", 8)))
    assert long.kv > small.kv and wide.kv == 2 * small.kv and threads.work > small.work and small.weights == threads.weights


def test_tables_that_are_only_looked_up_count_by_row(tmp_path: Path) -> None:
    sizes = {"n_vocab": 40_000, "n_embd": 64}
    for tied in (False, True):
        with open_gguf(tiny_model(tmp_path / f"{tied}.gguf", "llama", "F32", tied=tied, **sizes)) as gguf:
            table = gguf.tensors["token_embd.weight"].nbytes
            rest = gguf.nbytes - table * (1 if tied else 2)
            counted = needed(gguf, 64).weights - table
        assert (counted <= rest) if tied else (counted <= rest + 64 * LOOKUP_BYTES)


def test_refusals_name_need_have_and_two_ways_out(model: Path) -> None:
    need = estimate.Need(2 * 10**9, 10**9, 10**8, 10**8)
    estimate.check(need, 4096, str(model), free=Memory(int(3.6e9)))
    said = r"m\.gguf needs 3\.20 GB .* 2\.70 GB .*context=(\d+) or less.*close other.*force=True"
    with pytest.raises(NotEnoughMemory, match=said) as caught:
        estimate.check(need, 4096, str(model), free=Memory(3 * 10**9))
    shorter = int(str(caught.value).split("context=")[1].split()[0])
    less = estimate.Need(need.weights, need.kv * shorter // 4096, need.work, need.base)
    estimate.check(less, shorter, "m.gguf", free=Memory(3 * 10**9))
    with pytest.raises(NotEnoughMemory, match="smaller model or type"):
        estimate.check(need, 4096, "m.gguf", free=Memory(10**9))
    with pytest.raises(NotEnoughMemory):  # the file is mapped already, the rest would not be
        estimate.check(need, 4096, "m.gguf", free=Memory(1 << 40, 10**9))
    estimate.check(need, 4096, "m.gguf", free=Memory(1 << 40, int(1.4e9)))


def test_load_refuses_before_it_allocates_and_force_overrides(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "memory", lambda: Memory(50 << 20))
    prepared: list[object] = []
    monkeypatch.setattr(HOST, "prepare", lambda *arguments: prepared.append(arguments))
    with pytest.raises(NotEnoughMemory, match="force=True"):
        edgellm.load(model)
    assert prepared == []
    monkeypatch.undo()
    monkeypatch.setattr(estimate, "memory", lambda: Memory(50 << 20))
    with edgellm.load(model, context=64, force=True) as opened:
        assert opened.generate([1, 2], max_tokens=2, ignore_eos=True).stats.generated_tokens == 2


def test_only_ample_memory_needs_no_exact_figure(model: Path) -> None:
    with open_gguf(model) as gguf:
        enough = 2 * (gguf.nbytes + estimate.AMPLE_WORK)
        assert estimate.is_ample(gguf, 0, Memory(int(enough / 0.9) + 2))
        assert not estimate.is_ample(gguf, 0, Memory(int(enough / 0.9) - 2))
        assert not estimate.is_ample(gguf, 0, Memory(1 << 40, enough // 2))
        assert not estimate.is_ample(gguf, 1 << 40, Memory(1 << 40))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS counts mappings on Linux only")
def test_a_limit_on_address_space_is_seen() -> None:
    code = "from edgellm.catalogue.machine import memory; import psutil; free = memory(); print(free.address_space, free.mappable)"
    limit = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    left, mappable = map(int, done.stdout.split())
    assert 0 < left < limit and mappable <= 0.9 * left + 1
    assert memory().address_space is None or memory().address_space > 0


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS counts mappings on Linux only")
@pytest.mark.parametrize("limit", [512 << 20, 800 << 20, 1500 << 20])
def test_a_process_with_little_address_space_is_refused_or_works(limit: int, model: Path) -> None:
    code = f"""
import edgellm
try:
    with edgellm.load({str(model)!r}, context=60000, threads=1) as model:
            print("works", model.generate([1, 2, 3], max_tokens=3, ignore_eos=True).stats.generated_tokens)
except edgellm.EdgeError as error:
    print("refused", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("works 3") or "can be used" in done.stdout or "GiB" in done.stdout, done.stdout


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_cgroups_version_2(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/outer/inner\n")
    group(
        tmp_path / "fs/outer",
        memory__max=10 << 20,
        memory__current=8 << 20,
        memory__stat="anon 1\ninactive_file 1048576\nactive_file 1048576",
    )
    group(tmp_path / "fs/outer/inner", memory__max="max", memory__current=1)
    assert memory(tmp_path / "fs", own).available == 4 << 20
    group(tmp_path / "fs/outer/inner", memory__max=3 << 20, memory__current=1 << 20)
    assert memory(tmp_path / "fs", own).available == 2 << 20 and 0 < free_memory(tmp_path / "fs", own) <= 1
    group(tmp_path / "fs/outer/inner", memory__max=1 << 20, memory__current=2 << 20)
    assert memory(tmp_path / "fs", own).available == 0 and free_memory(tmp_path / "fs", own) == 0


def test_cgroups_version_1_and_containers(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\nnonsense\n")
    group(
        tmp_path / "fs/memory",
        memory__limit_in_bytes=6 << 20,
        memory__usage_in_bytes=4 << 20,
        memory__stat="inactive_file 5\ntotal_inactive_file 1048576\ntotal_active_file 0",
    )
    assert memory(tmp_path / "fs", own).available == 3 << 20  # /docker/abc is not visible in there
    own.write_text("4:memory:/../../etc\n")
    assert memory(tmp_path / "fs", own).available == 3 << 20
    assert memory(tmp_path / "none", tmp_path / "none").available > 0


# --- weights that only look like the model's ------------------------------------------------------------------------------
@pytest.mark.parametrize("quant", QUANTS)
def test_stand_ins_have_the_shapes_and_sound_values(quant: str, tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", quant)) as gguf:
        real, empty, full = WeightStore(gguf), SyntheticWeights(gguf), ProbeWeights(gguf)
        for name in real.names():
            for stand_in in (empty[name], full[name]):
                assert (stand_in.shape, stand_in.type) == (real[name].shape, real[name].type)
                assert stand_in.data.shape == real[name].data.shape
            assert full[name].address % 4 == 0 and np.isfinite(full[name].array()).all() and full[name].array().any()


def test_a_rehearsal_gives_a_speed_and_reads_no_weight(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_gguf(model) as gguf:
        monkeypatch.setattr(GGUFFile, "raw", lambda self, name: pytest.fail("a weight was read"))
        rate = speed_probe.tokens_per_second(gguf, threads=1, seconds=0.05)
    assert math.isfinite(rate) and rate > 1


def test_contexts_and_the_best_one(model: Path) -> None:
    with open_gguf(model) as gguf:
        result = fitting.fit(gguf, free=PLENTY)
        assert [row.kv_type for row in result.rows] == ["f16", "q8_0", "q4_0", "f32"]
        assert {row.context for row in result.rows} == {4096}
        assert result.best is not None and result.best.kv_type == "f16" and all(row.fits for row in result.rows)
        none = fitting.fit(gguf, free=Memory(1 << 20))
        assert none.best is None and not any(row.fits for row in none.rows)
        assert [row.context for row in fitting.fit(gguf, context=64, free=PLENTY).rows] == [64] * len(KV_TYPES)


@pytest.mark.parametrize(
    "trained, shown",
    [
        (512, [512]),
        (4096, [4096]),
        (32768, [4096, 8192, 16384, 32768]),
        (40960, [4096, 8192, 16384, 32768, 40960]),
        (131072, [4096, 8192, 16384, 32768, 65536, 131072]),
        (10**6, [4096, 8192, 16384, 32768, 65536, 131072]),
    ],
)
def test_which_contexts_are_shown(trained: int, shown: list[int]) -> None:
    assert fitting._contexts(trained) == shown


@pytest.fixture
def free_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if loading took nothing, which hides what a tiny model's keys and values take."""
    monkeypatch.setattr(estimate, "START_BYTES", 0)
    monkeypatch.setattr(estimate, "START_TOKEN_BYTES", 0)


@pytest.mark.usefixtures("free_start")
def test_codes_for_keys_where_halves_do_not_fit(model: Path) -> None:
    with open_gguf(model) as gguf:
        rows = fitting.fit(gguf, free=PLENTY).rows
        halves, codes = (row.need.total for row in rows[:2])
        between = fitting.fit(gguf, free=Memory(int((halves + codes) / 2 / 0.9)))
    assert between.best is not None and between.best.kv_type == "q8_0"
    last = replace(between, rows=tuple(replace(row, fits=row.kv_type == "q4_0") for row in rows))
    assert last.best is not None and last.best.kv_type == "q4_0"


@pytest.mark.usefixtures("free_start")
def test_keys_and_values_get_smaller_before_the_context_does(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unasked, a machine with little memory takes q8_0, then half the context; what was asked for is refused instead."""

    def little(context: int, kv_type: str) -> Memory:
        with open_gguf(model) as gguf:
            return Memory(int(needed(gguf, context, kv_type, 1).total / 0.9) + 4096)

    for context, kv_type in ((4096, "f16"), (4096, "q8_0"), (2048, "f16"), (2048, "q8_0")):
        free = little(context, kv_type)
        monkeypatch.setattr(estimate, "memory", lambda free=free: free)
        with load.load(model) as loaded:
            assert (loaded.info.context, loaded.info.kv_type) == (context, kv_type)
            assert ("memory is short" in loaded.info.place) == ((context, kv_type) != (4096, "f16"))
        if kv_type == "q8_0":
            with pytest.raises(NotEnoughMemory):
                load.load(model, kv_type="f16", context=context)


def test_a_model_that_cannot_run_is_said_so(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", metadata={"general.architecture": "mamba"})) as gguf:
        result = fitting.fit(gguf, free=PLENTY)
    assert "mamba" in result.refusal and result.rows == () and result.best is None


def test_contexts_past_learned_positions_are_refused_as_load_does(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "gpt2", context=64)) as gguf:
        with pytest.raises(OptionError, match="learned 64 positions"):
            fitting.fit(gguf, context=128, free=PLENTY)
        assert fitting.fit(gguf, context=64, free=PLENTY).best is not None


def test_embedding_models_are_for_embed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")
    with open_gguf(path) as gguf:
        assert {row.kv_type for row in fitting.fit(gguf, free=PLENTY).rows} == {"f32"}
    assert app.run(["fit", str(path), "--no-timing"]) == 0
    assert f"It fits: edgellm embed {path} lines.txt" in capsys.readouterr().out


def test_a_plan_that_is_too_large_does_not_fit(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> estimate.Need:
        raise MemoryError

    monkeypatch.setattr(fitting, "need", no_memory)
    with open_gguf(model) as gguf:
        result = fitting.fit(gguf, context=2**30, free=PLENTY)
    assert not result.refusal and result.best is None and all(row.need.kv > 2**30 for row in result.rows)


# --- the catalogue ----------------------------------------------------------------------------------------------------------
def test_guesses() -> None:
    rate = speed.Speed(20e9, 0.5)
    dense, moe = entries()["qwen3-4b"], entries()["qwen3-30b-a3b"]
    one = fitting.guess(dense, dense.files[0], rate, PLENTY)
    assert one.tokens_per_second == pytest.approx(10e9 / 2497280256, rel=0.01) and one.fits == "yes" and one.memory > 2497280256
    other = fitting.guess(moe, moe.files[0], rate, PLENTY)
    assert other.tokens_per_second == pytest.approx(10e9 / (18556685824 * 3.3 / 30.5), rel=0.01)
    assert [fitting.verdict(100, Memory(n)) for n in (100, 112, 140, 200)] == ["no", "tight", "tight", "yes"]
    assert fitting.instead(Memory(1 << 20)) is None
    best = fitting.instead(PLENTY)
    assert best is not None and fitting.runs(best)
    slow = [fitting.guess(entry, entry.files[0], speed.Speed(20e9, 0.5), PLENTY) for entry in entries().values()]
    chosen = fitting.best_of(slow)
    assert chosen is not None and chosen.tokens_per_second >= fitting.READING_SPEED and chosen.entry.memory_gb < best.memory_gb


def test_the_speed_is_measured_once_and_follows_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / speed.FILE
    monkeypatch.setattr("edgellm.bench.speed.user_cache", lambda: tmp_path)
    file.write_text(json.dumps({"machine": speed._machine(), "bytes_per_second": 1e10, "reached": []}))
    assert speed.speed() == speed.Speed(1e10, speed.EFFICIENCY)
    for rate in (4.0, 5.0, 6.0):
        speed.remember(10**9, rate)
    speed.remember(1000, 1e9)  # too small a model to tell anything
    assert speed.speed().efficiency == pytest.approx(0.5)
    assert speed.speed().tokens_per_second(5e8) == pytest.approx(10, rel=0.02)
    other = '{"machine": "other", "bytes_per_second": 1.0, "reached": []}'
    for broken in ("", "{}", "[]", other, file.read_text().replace("10000000000.0", "-1.0")):
        file.write_text(broken)
        assert speed._read() is None


# --- headers on the hub ------------------------------------------------------------------------------------------------------
def opened(server: LocalHub, name: str = "hf:o/r") -> GGUFFile:
    return open_remote(name, Hub(server.environment(), HttpLimits(tries=3, pause=0.0), sleep=lambda seconds: None))[0]


def test_the_projector_of_a_model_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a model that is here with its work, and on the hub with its bytes."""
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0", n_embd=OUT, tokenizer="bpe")
    assert app.run(["fit", str(path), "--json", "--no-timing"]) == 0
    alone = json.loads(capsys.readouterr().out)
    projector = projector_file(tmp_path / "mmproj.gguf", "idefics3")
    assert app.run(["fit", str(path), "--json", "--no-timing"]) == 0
    seeing = json.loads(capsys.readouterr().out)
    assert alone["projector"] == 0 and seeing["projector"] > projector.stat().st_size / 2
    assert [b["bytes"] - a["bytes"] for a, b in zip(alone["memory"], seeing["memory"], strict=True)] == [
        pytest.approx(seeing["projector"], abs=1 << 20)
    ] * len(alone["memory"])
    with LocalHub() as server:
        server.put("o/r", "m.gguf", path.read_bytes())
        server.put("o/r", "mmproj-F16.gguf", projector.read_bytes())
        hub = Hub(server.environment(), HttpLimits(tries=3, pause=0.0), sleep=lambda seconds: None)
        remote, more = open_remote("hf:o/r", hub)
        with remote, open_gguf(path) as local:
            assert remote.tensors == local.tensors and more == projector.stat().st_size


@pytest.mark.parametrize("kind", ["qwen2a", "lfm2a", "gemma4ua", "qwen2.5o"])
def test_the_work_of_an_audio_encoder_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """For a clip of half a minute."""
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0", n_embd=OUT, tokenizer="bpe")
    projector = hearing_file(tmp_path / "mmproj.gguf", kind)
    assert app.run(["fit", str(path), "--json", "--no-timing"]) == 0
    found = json.loads(capsys.readouterr().out)["projector"]
    assert found == memory_of(projector) > projector.stat().st_size + (1 << 16)
    with hearing(tmp_path, kind) as model:
        assert model._loaded.encoders.file_bytes == projector.stat().st_size < found


def test_a_header_comes_by_range_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.catalogue.remote.FIRST", 1000)
    path = tiny_model(tmp_path / "m.gguf", "qwen3", "Q8_0", tokenizer="bpe", n_ff=2048)
    with LocalHub() as server, open_gguf(path) as local:
        server.put("o/r", "m.gguf", path.read_bytes())
        server.misbehave(cut(500), status(503))
        with opened(server) as remote:
            assert remote.tensors == local.tensors
            assert remote.nbytes == path.stat().st_size and list(remote.metadata) == list(local.metadata)
            assert fitting.fit(remote, free=PLENTY) == fitting.fit(local, free=PLENTY)
        ends = [request.headers["range"] for request in server.asked("bytes")]
        assert ends[0] == "bytes=0-999" and int(ends[-1].rpartition("-")[2]) < path.stat().st_size - 100_000
        server.requests.clear()
        server.misbehave(ignore_range)  # the answer is left after what is needed
        assert opened(server).metadata["general.architecture"] == "qwen3"


def test_a_split_model_is_the_sum_of_its_headers(tmp_path: Path) -> None:
    import gguf

    for part in range(2):
        writer = gguf.GGUFWriter(tmp_path / f"m-0000{part + 1}-of-00002.gguf", "llama")
        for key, value in {"split.no": part, "split.count": 2, "split.tensors.count": 2}.items():
            writer.add_uint16(key, value)
        writer.add_tensor(f"t{part}", np.full((8, 64), part, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    with LocalHub() as server, open_gguf(tmp_path / "m-00001-of-00002.gguf") as local:
        for path in tmp_path.glob("*.gguf"):
            server.put("o/r", path.name, path.read_bytes())
        with opened(server) as remote:
            assert remote.tensors == local.tensors and remote.nbytes == local.nbytes and len(remote.paths) == 2


def test_headers_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.catalogue.remote.FIRST", 1 << 16)
    monkeypatch.setattr("edgellm.catalogue.remote.MOST", 1 << 18)
    data = tiny_model(tmp_path / "m.gguf").read_bytes()
    with LocalHub() as server:
        server.put("o/page", "m.gguf", b"<html>" * 1000)
        with pytest.raises(FormatError, match="web page"):
            opened(server, "hf:o/page")
        server.put("o/cut", "m.gguf", data[:300])
        with pytest.raises(FormatError):
            opened(server, "hf:o/cut")
        endless = (
            b"GGUF\3\0\0\0"
            + (1).to_bytes(8, "little")
            + (1).to_bytes(8, "little")
            + (1).to_bytes(8, "little")
            + b"k"
            + (8).to_bytes(4, "little")
            + (10**6).to_bytes(8, "little")
            + bytes(2 << 20)
        )
        server.put("o/long", "m.gguf", endless)
        with pytest.raises(DownloadError, match="header of more than"):
            opened(server, "hf:o/long")


def test_every_prefix_is_a_header_or_is_too_short(tmp_path: Path) -> None:
    data = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0", tokenizer="bpe").read_bytes()
    with open_gguf(tmp_path / "m.gguf") as whole:
        start = min(info.offset for info in whole.tensors.values())
        for n in [*range(0, start + 64, 61), start - 1, start]:
            found = gguf_from_prefixes([Prefix("m", data[:n], len(data))])
            assert (found is not None) == (n >= start), n
            assert found is None or dict(found.tensors) == dict(whole.tensors)


def test_arguments() -> None:
    from edgellm.cli import app

    assert app.run(["fit", "x.gguf", "--context", "3"]) == OptionError.exit_code
    assert machines.GROUPS.is_absolute()
