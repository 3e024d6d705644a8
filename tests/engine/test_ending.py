"""How a model ends: with its program while threads compute, before calls that wait for it, and in forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fake_backend import toys
from tiny_models import tiny_model
from waiting import until

from edgellm.bench.logits import text_logits
from edgellm.errors import BackendError, ModelClosed
from edgellm.formats.mapped import MappedFile

ENDING = """
import sys, threading, time, edgellm

model = edgellm.load(sys.argv[1], threads=int(sys.argv[2]), context=64)

def logits():
    try:
        while True:
            model.logits(list(range(1, 60)))
    except edgellm.EdgeError:                    # the model is closed at the end, as it should be
        pass

def stream():
    try:
        for _ in model.stream([1], max_tokens="unlimited", ignore_eos=True):
            pass
    except edgellm.EdgeError:
        pass

for work in (logits, stream, logits):
    threading.Thread(target=work, daemon=True).start()
time.sleep(float(sys.argv[3]))
"""


USUAL = ((1, 0.02), (2, 0.0), (4, 0.05))


@pytest.mark.parametrize(
    ("threads", "seconds"),
    [
        pytest.param(threads, seconds, marks=[] if (threads, seconds) in USUAL else pytest.mark.slow)
        for threads in (1, 2, 4)
        for seconds in (0.0, 0.02, 0.05)
    ],
)
def test_a_program_may_end_while_threads_compute(tmp_path: Path, threads: int, seconds: float) -> None:
    """It used to unmap the weights under the kernels, or to walk a plan twice: a crash or a hang in half of the runs."""
    path = tiny_model(tmp_path / "m.gguf")
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(path), str(threads), str(seconds)], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_after_its_end_a_program_finds_its_models_closed(tmp_path: Path) -> None:
    """Functions that `atexit` calls after ours neither crash nor wait for ever."""
    code = """if True:
        import atexit, sys, edgellm
        def last():
            for use in (lambda: model.logits([1]), lambda: model.generate([1]), lambda: next(stream)):
                try: use()
                except edgellm.EdgeError as error: print(type(error).__name__, model.closed)
            model.close()
        atexit.register(last)
        model = edgellm.load(sys.argv[1])
        stream = model.stream([1], ignore_eos=True)
        next(stream)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny_model(tmp_path / "m.gguf"))], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.split("\n") == ["ModelClosed True"] * 3 + [""]


def test_closing_goes_before_calls_that_wait(tmp_path: Path) -> None:
    loader = toys()
    model = loader.load(tiny_model(tmp_path / "m.gguf"), context=32)
    loader.toy.fail = lambda: time.sleep(0.001)
    ends: list[str] = []

    def ask() -> None:
        try:
            ends.append(model.generate([1, 2], max_tokens=20_000, ignore_eos=True).stop_reason)
        except ModelClosed:
            ends.append("closed")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(loader.toy.log) >= 5)
    model.close()
    for thread in threads:
        thread.join(120)
    assert sorted(ends) == ["cancelled", "closed", "closed", "closed"]


def test_logits_of_a_text_from_a_closed_model(tmp_path: Path) -> None:
    """The thread that closes a model keeps the lock that steps take."""
    ends: list[str] = []

    def ask() -> None:
        with pytest.raises(ModelClosed) as caught:
            list(text_logits(model, np.array([1, 2, 3], np.int32), 0, 4))
        ends.append(str(caught.value))

    with toys().load(tiny_model(tmp_path / "m.gguf"), context=32) as model:
        assert len(next(text_logits(model, np.array([1, 2, 3], np.int32), 0, 4))) == 3
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(120)
    assert len(ends) == 1 and "load it again" in ends[0]


def test_cancelling_ends_answers_and_no_logits(tmp_path: Path) -> None:
    loader = toys()
    with loader.load(tiny_model(tmp_path / "m.gguf"), context=32) as model:
        wanted = model.logits([1, 2, 3])
        loader.toy.fail = model.cancel  # while a step is computed
        assert np.array_equal(model.logits([1, 2, 3]), wanted)
        assert model.generate([1], max_tokens=5, ignore_eos=True).stop_reason == "cancelled"


def test_a_call_looks_at_the_file_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, another thread may be closing the model, and the file's descriptor be gone or another file's."""
    with toys().load(tiny_model(tmp_path / "m.gguf"), context=32) as model:
        looks: list[object] = []

        def changed(file: MappedFile) -> bool:
            looks.extend(model.engine.core.running)
            return False

        monkeypatch.setattr(MappedFile, "changed", changed)
        stream = model.stream([1], max_tokens=1)
        assert looks == []
        list(stream)
        model.logits([1])
        assert looks[0] is stream._answer and len(looks) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process")
def test_leaving_a_with_block_in_a_forked_process(tmp_path: Path) -> None:
    code = (
        "import os, sys, edgellm\nwith edgellm.load(sys.argv[1], threads=2) as model:\n expected = model.logits([1, 2])\n"
        " child = os.fork()\n if child == 0: sys.exit(7)\n assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        " assert (model.logits([1, 2]) == expected).all()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tiny_model(tmp_path / "m.gguf"))],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_gets_an_error(tmp_path: Path) -> None:
    with toys().load(tiny_model(tmp_path / "m.gguf"), context=32) as model:
        child = os.fork()
        if child == 0:
            try:
                model.generate([1], max_tokens=1)
            except BackendError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
