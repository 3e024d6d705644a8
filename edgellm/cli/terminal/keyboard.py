"""The keyboard of a terminal while nobody reads it: keys do not appear in what is being printed, and wait for the next prompt."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from edgellm.cli.terminal.filter import Filter
from edgellm.cli.terminal.output import fitting

ERASE, ERASE_LINE = "\x7f\b", "\x15"  # Backspace, Ctrl-U
MOST = 1 << 20  # characters that are kept
_set_aside: list[bytes] = []  # keys from before a question


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While the block runs, the terminal on stdin does not show what is typed. Ctrl-C and Ctrl-Z work as before.

    Where stdin is not a terminal, and on Windows, where consoles show no keys that nobody reads, nothing is done.
    """
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    silent[3] |= termios.NOFLSH  # Ctrl-C keeps what was typed ahead
    silent[6][termios.VMIN], silent[6][termios.VTIME] = 1, 0

    def show(attributes: list[Any]) -> Callable[[], None]:  # Any: termios' own mixture
        return lambda: termios.tcsetattr(descriptor, termios.TCSANOW, attributes)

    show(silent)()
    try:
        with _handing_back(show(before), show(silent)):
            yield
    finally:
        show(before)()


@contextlib.contextmanager
def _handing_back(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Ctrl-Z and `kill` hand the terminal back as it was: not every shell puts it right by itself."""

    def hand_back(number: int, frame: FrameType | None) -> None:
        before()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, hand_back)  # continues here after `fg`
        after()

    usual = {
        number: signal.signal(number, hand_back)
        for number in (signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def more_comes(seconds: float) -> bool:
    """True if the terminal on stdin has more keys to read, or will within some seconds: nobody types that fast."""
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.kbhit()
    return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])


def asked(question: str, *, interrupted: bool = False) -> bool:
    """Ask on the terminal; "y" means yes, Ctrl-C means `interrupted`, any other key and a missing terminal mean no.

    Keys that were pressed before the question are no answer: they wait for the next prompt.
    """
    if sys.platform == "win32" or not sys.stdin.isatty():
        return False
    with quiet(), _interruptible():
        try:
            _set_aside.append(_pressed())  # also an unfinished line, which the terminal holds back otherwise
            sys.stderr.write(f"{fitting(question + ' y/N')} ")
            sys.stderr.flush()
            yes = os.read(sys.stdin.fileno(), 1).lower() == b"y"
        except KeyboardInterrupt:
            yes = interrupted
    print(file=sys.stderr, flush=True)
    return yes


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in the block, also where it stops an answer otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def typed_ahead() -> str:
    """The text that was typed since the last prompt; it is read, so that it comes once."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return ""  # prompt_toolkit reads a Windows console's keys by itself
    data = b"".join(_set_aside) + _pressed()
    _set_aside.clear()
    return as_text(data.decode("utf-8", errors="ignore")).lstrip("\n")


def _pressed() -> bytes:
    data = b""
    while len(data) < MOST and more_comes(0) and (chunk := os.read(sys.stdin.fileno(), 4096)):
        data += chunk
    return data


def as_text(keys: str) -> str:
    """Keys as an editor would have taken them: erased characters are gone, and so are arrows and other control keys."""
    kept: list[str] = []
    for key in keys.replace("\r\n", "\n").replace("\r", "\n"):
        if key in ERASE:
            if kept and kept[-1] != "\n":
                kept.pop()
        elif key == ERASE_LINE:
            while kept and kept[-1] != "\n":
                kept.pop()
        else:
            kept.append(key)
    return Filter()("".join(kept))
