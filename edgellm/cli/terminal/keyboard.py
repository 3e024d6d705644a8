"""The keyboard of a terminal while nobody reads it: keys do not appear in what is being printed, and wait for the next prompt."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from edgellm.cli.terminal.filter import Filter

ERASE, ERASE_LINE = "\x7f\b", "\x15"  # Backspace, Ctrl-U
MOST = 1 << 20  # characters that are kept


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


def asked(question: str) -> bool:
    """Ask on the terminal; one key answers, and all but "y" mean no; without a terminal the answer is no."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} y/N ")
    sys.stderr.flush()
    try:
        answer = os.read(sys.stdin.fileno(), 1)
    except KeyboardInterrupt:
        answer = b"y"  # a third time
    print(file=sys.stderr, flush=True)
    return answer.lower() == b"y"


def typed_ahead() -> str:
    """The text that was typed since the last prompt; it is read, so that it comes once."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return ""  # prompt_toolkit reads a Windows console's keys by itself
    data = b""
    while len(data) < MOST and more_comes(0) and (chunk := os.read(sys.stdin.fileno(), 4096)):
        data += chunk
    return as_text(data.decode("utf-8", errors="ignore")).lstrip("\n")


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
