"""Image encoders between pictures: the plan that is kept, memory that is given back, progress and cancelling."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_models import tiny_model
from tiny_projectors import KINDS, OUT, projector_file

import edgellm
from edgellm.backends.cpu import executable as cpu
from edgellm.backends.cpu.executable import CpuExecutable
from edgellm.errors import ImageError, ModelClosed, OptionError
from edgellm.loading import estimate
from edgellm.loading.encoder_memory import memory_of
from edgellm.loading.image_encoder import ImageEncoder, Watch


def picture(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)


def resident(memory: npt.NDArray[np.uint8]) -> int:
    """Bytes of an array that are in memory, in whole pages, Linux only."""
    start, total = memory.ctypes.data, 0
    with open("/proc/self/pagemap", "rb") as file:
        for page in range(-(-start // 4096), (start + memory.nbytes) // 4096):
            file.seek(page * 8)
            total += (int.from_bytes(file.read(8), "little") >> 63) * 4096
    return total


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if number % 3 else ()) for number, kind in enumerate(sorted(KINDS))]
)
def test_bits_do_not_depend_on_parts(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts so small that every product and every list of attention's work is cut."""
    path = projector_file(tmp_path / "mmproj.gguf", kind)
    one, two, cut = ImageEncoder(path, threads=1), ImageEncoder(path, threads=2), ImageEncoder(path, threads=2)
    wanted = one.encode(picture(150, 90)).rows
    assert np.array_equal(two.encode(picture(150, 90)).rows, wanted)
    monkeypatch.setattr(cpu, "PART", 10_000)
    shares: list[int] = []
    assert np.array_equal(cut.encode(picture(150, 90), watch=Watch(progress=lambda done, total: shares.append(done))).rows, wanted)
    assert len(shares) > 60 and shares == sorted(shares)
    for encoder in (one, two, cut):
        encoder.close()


def test_a_plan_is_kept_for_smaller_images_and_its_memory_given_back(tmp_path: Path) -> None:
    encoder = ImageEncoder(projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger"), threads=2)
    small = encoder.encode(picture(64, 64)).rows
    first = encoder.graphs[0].executable
    encoder.encode(picture(640, 640))
    second = encoder.graphs[0].executable
    assert isinstance(second, CpuExecutable) and second is not first
    encoder._kept.clear()
    assert np.array_equal(encoder.encode(picture(64, 64)).rows, small) and encoder.graphs[0].executable is second
    blocks = second._plan.arena.blocks
    assert sum(block.nbytes for block in blocks) > 1 << 20
    if Path("/proc/self/pagemap").exists():
        assert sum(map(resident, blocks)) < 1 << 16
    encoder.close()


def test_an_image_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its caller, by `cancel` of the model from another thread, and when the model is closed."""
    monkeypatch.setattr(cpu, "PART", 100_000)
    path = projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger")
    encoder = ImageEncoder(path, threads=1)
    with pytest.raises(ImageError, match="cancelled"):
        encoder.encode(picture(300, 300), watch=Watch(lambda: True))
    wanted = encoder.encode(picture(300, 300)).rows
    encoder.close()
    model = edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe"), threads=1)
    seen, raised = threading.Event(), list[BaseException]()

    def slow(done: int, total: int) -> None:
        seen.set()
        time.sleep(0.02)

    def encode() -> None:
        try:
            model.embed_image(picture(300, 300), progress=slow)
        except edgellm.EdgeError as error:
            raised.append(error)

    for end, kind in ((model.cancel, ImageError), (model.close, ModelClosed)):
        thread = threading.Thread(target=encode)
        thread.start()
        assert seen.wait(20)
        end()
        thread.join(5)
        assert isinstance(raised.pop(), kind)
        seen.clear()
        if kind is ImageError:
            assert np.array_equal(model.embed_image(picture(300, 300)), wanted)
            model._loaded.encoders.image._kept.clear()  # type: ignore[union-attr]  # there is one


def test_a_cancelled_task_gives_its_image_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "PART", 100_000)
    projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger")
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe"), threads=1) as model:
        seen = list[tuple[int, int]]()

        def slow(done: int, total: int) -> None:
            seen.append((done, total))
            time.sleep(0.02)

        async def cancelled() -> None:
            task = asyncio.create_task(model.agenerate([edgellm.Image(picture(300, 300)), "what"], max_tokens=2, progress=slow))
            while not seen:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        time.sleep(0.1)
        count = len(seen)
        time.sleep(0.2)
        assert len(seen) == count and seen[-1][0] < seen[-1][1]


def test_the_memory_check_counts_the_encoder_and_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe")
    checked: list[estimate.Need] = []
    monkeypatch.setattr(estimate, "is_ample", lambda gguf, kv, copied: False)
    monkeypatch.setattr(estimate, "check", lambda needed, context, path: checked.append(needed))
    path = projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger")
    edgellm.load(model, context=256, mmproj="none").close()
    edgellm.load(model, context=256).close()
    blind, seeing = checked
    assert not blind.projector and seeing.projector == memory_of(path, 1) > path.stat().st_size + (1 << 20)  # 3,072 patches
    assert seeing.total > blind.total


def test_rows_for_more_layers_than_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are end after the last one; more belong to another model."""
    own, shapes = KINDS["qwen3vl_merger"]()
    more = {name.replace("deepstack.1", "deepstack.2"): shape for name, shape in shapes.items() if "deepstack.1" in name}
    keys = own | {"is_deepstack_layers": [False, True, True]}
    monkeypatch.setitem(KINDS, "qwen3vl_merger", lambda: (keys, shapes | more))
    projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger")
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, n_layers=2, tokenizer="bpe")) as model:
        assert model.embed_image(picture(64, 64)).shape[1] == 3 * OUT
        found = model.logits([5, edgellm.Image(picture(64, 64)), 6])
        assert np.isfinite(found).all()
    with pytest.raises(OptionError, match="after 2 layers, and the model has 1"):
        edgellm.load(tiny_model(tmp_path / "n.gguf", "llama", "F32", n_embd=OUT, n_layers=1, tokenizer="bpe"))
