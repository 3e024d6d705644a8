"""One line on stderr that says what takes so long, only when it does take long."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Self

from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.keyboard import asked
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.screen import columns
from edgellm.errors import OptionError

DELAY_TERMINAL, DELAY_LOG = 0.3, 2.0  # seconds before anything is shown; a log needs no line for every start
TICK, LONG = 1.0, 3.0  # seconds between two looks at the clock, and from when on it is shown


class PassingLine:
    """A line that is shown while its block runs, once that has taken a while: passing on a terminal, plain elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = self._text = what
        self._lock = threading.RLock()  # a signal's handler may come in between
        self._tty = sys.stderr.isatty()
        self._late = False  # it has taken long enough
        self._over = threading.Event()
        self._since = time.monotonic()
        self._width = 0  # of what is on the screen

    def show(self, text: str) -> None:
        """Set the text of the line."""
        with self._lock:
            self._text = text
            if self._late and self._tty:
                self._draw()

    def erase(self) -> None:
        """Take the line away for good; doing that twice does nothing."""
        with self._lock:
            self._over.set()
            if self._width:
                self._write("")

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.erase()

    def _run(self) -> None:
        """Begin to show, and on a terminal let the seconds go by."""
        wait = DELAY_TERMINAL if self._tty else DELAY_LOG
        while not self._over.wait(wait):
            with self._lock:
                if self._over.is_set():
                    return
                self._late = True
                if not self._tty:
                    print(f"{clean(self._what)} ...", file=sys.stderr, flush=True)
                    return
                self._draw()
            wait = TICK

    def _draw(self) -> None:
        if self._over.is_set():
            return
        seconds = time.monotonic() - self._since
        self._write(f"{clean(self._text)} ..." + (f" {seconds:.0f} s" if seconds >= LONG else ""))

    def _write(self, text: str) -> None:
        """Replace the line: carriage return and spaces work on every terminal."""
        text = text[: columns(sys.stderr) - 1]
        sys.stderr.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)


class ProgressLine(PassingLine):
    """Shows `(what, done, of)` reports. Ctrl-C during its block is answered at once, and confirmed when all is cleared away."""

    def __call__(self, what: str, done: int, of: int) -> None:
        """Report: `done` of `of` steps of `what` are behind us."""
        self._what = what
        self.show(f"{what} {done}/{of}" if of > 1 else what)

    def __enter__(self) -> Self:
        self._begun = self._what
        self._handler = signal.getsignal(signal.SIGINT)
        if self._tty and self._handler is signal.default_int_handler and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._stop)
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if signal.getsignal(signal.SIGINT) == self._stop:
            signal.signal(signal.SIGINT, self._handler)
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        if stopped and self._width:
            self._width += len("^C")  # which the terminal puts behind it
        super().__exit__(kind, error, trace)
        if stopped:
            say(f"(stopped while {self._begun})")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Let a stage that has begun end, such as building a tokenizer."""
        with self._lock:
            self._late = True
            self.show("stopping")
        raise KeyboardInterrupt


class ReadingLine(PassingLine):
    """Shows on a terminal how much of a prompt was read, then how much is thought unseen, until the answer begins.

    A prompt of which the context cannot hold all that is new is said before it is read, as that may take long; where `asks`, a
    terminal's user decides whether it is read at all.
    """

    def __init__(self, context: int, trained: int, *, asks: bool = False) -> None:
        super().__init__("reading")
        self._thoughts, self._context, self._trained = 0, context, trained
        self._warned, self._asks = False, asks

    def __enter__(self) -> Self:
        if self._tty:
            super().__enter__()
        return self

    def read(self, done: int, total: int) -> None:
        """`done` tokens of the prompt are read; for `progress=` of the library. Raises OptionError where it shall not be."""
        if total - done > self._context and not self._warned:
            from edgellm.api.context_policy import context_for

            self._warned = True
            with self._lock:
                if self._width:
                    self._write("")
                enough = context_for(total, self._trained)
                say(
                    f"the prompt has {total:,} tokens, and the context holds {self._context:,}: the model does not see "
                    f"{total - self._context:,} of them; "
                    + (f"--context {enough} keeps them all" if enough else f"it was trained for {self._trained:,}")
                )
                if self._asks and self._tty and sys.stdin.isatty() and not asked("read the end of it all the same?"):
                    raise OptionError("the prompt was not read; give a part of it" + (", or a larger --context" if enough else ""))
                self._since = time.monotonic()
        self.show(f"reading {done:,} / {total:,} tokens")

    def thought(self) -> None:
        """One more piece was thought that is not shown."""
        self._thoughts += 1
        self.show(f"thinking, {self._thoughts:,} tokens")
