"""The programs of examples/ start, answer and end, as somebody would run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT
from tiny_models import tiny_model

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("examples") / "m.gguf", "llama", "F32", tokenizer="bpe")


@pytest.fixture(scope="module")
def display() -> Iterator[None]:
    """A screen that nobody sees."""
    if os.environ.get("DISPLAY"):
        yield
        return
    if shutil.which("Xvfb") is None:
        pytest.skip("no display and no Xvfb: windows cannot be opened here")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24"], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    try:
        os.close(write)
        number = os.read(read, 20).decode().strip()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DISPLAY", f":{number}")
            yield
    finally:
        server.terminate()
        server.wait()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_asyncio(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, EXAMPLES / "asyncio_chat.py", path, "one", "two"], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert "1: " in run.stdout and "2: " in run.stdout and "ticked" in run.stdout


@pytest.mark.usefixtures("display")
def test_tk(path: Path) -> None:
    """A question is answered, a second one stopped, and the window's clock goes on."""
    tkinter = pytest.importorskip("tkinter")
    module, root = example("tk_chat"), tkinter.Tk()
    window = module.ChatWindow(root, str(path))

    def until(true: object, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not true():  # type: ignore[operator]  # a function
            assert time.monotonic() < end, "the window does not get there"
            root.update()
            time.sleep(0.005)

    until(lambda: window.model is not None)
    for question, stops in (("hello", False), ("again", True)):
        window.entry.insert(0, question)
        window.send()
        if stops:
            window.cancel()
        until(lambda: window.stream is None)
    assert [message["role"] for message in window.messages] == ["user", "assistant"] * 2
    assert "> hello" in window.text.get("1.0", "end")
    window.close()
    assert window.model.closed and threading.active_count() >= 1


@pytest.mark.usefixtures("display")
def test_qt(path: Path) -> None:
    pytest.importorskip("PySide6")
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6 import QtWidgets

    module = example("qt_chat")
    application = QtWidgets.QApplication.instance() or QtWidgets.QApplication([])
    window = module.ChatWindow(str(path))
    end = time.monotonic() + 300
    while window.model is None and time.monotonic() < end:
        application.processEvents()
    window.entry.setText("hello")
    window.send()
    while window.stream is not None and time.monotonic() < end:
        application.processEvents()
    assert len(window.messages) == 2
    window.close()


def test_qt_says_what_it_needs() -> None:
    if importlib.util.find_spec("PySide6") is not None:
        pytest.skip("PySide6 is here")
    run = subprocess.run([sys.executable, EXAMPLES / "qt_chat.py", "m.gguf"], capture_output=True, text=True, timeout=600)
    assert run.returncode == 1 and "pip install PySide6" in run.stderr
