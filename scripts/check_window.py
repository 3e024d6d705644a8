"""Measures whether a window stays smooth while a model answers: examples/tk_chat.py with a ticker of 60 Hz in its event loop.

    .venv/bin/python scripts/check_window.py MODEL.gguf [--answers 3] [--cancels 10]

Needs a display, or `xvfb-run` before it. Prints how many ticks came more than 50 ms late, and how long Stop took to act. Ends
with 1 where more than 1 % were late or a Stop took more than 100 ms.
"""

from __future__ import annotations

import argparse
import sys
import time
import tkinter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from tk_chat import ChatWindow  # after the path

TICK, LATE, SLOW = 1 / 60, 0.05, 0.1  # seconds
QUESTION = "Tell me a long story about a river and the people who live beside it."


class Watched(ChatWindow):
    """The window, which asks by itself and stops some of the answers."""

    def __init__(self, root: tkinter.Tk, path: str, answers: int, cancels: int) -> None:
        self.lateness, self.stops = list[float](), list[float]()
        self.answers, self.cancels, self.asked, self.due = answers, cancels, 0, 0.0
        self.stopped: float | None = None
        super().__init__(root, path)
        self.tick()

    def tick(self) -> None:
        now = time.perf_counter()
        if self.stream is not None and self.due:
            self.lateness.append(now - self.due)
        self.due = now + TICK
        if self.stream is None and self.model is not None:
            self.ask(now)
        self.root.after(round(TICK * 1000), self.tick)

    def ask(self, now: float) -> None:
        """The next question, or the end."""
        if self.stopped is not None:
            self.stops.append(now - self.stopped)
            self.stopped = None
        if self.asked == self.answers + self.cancels:
            self.close()
            return
        self.asked += 1
        self.messages.clear()
        self.entry.insert(0, QUESTION)
        self.send()
        if self.asked > self.answers:
            self.root.after(700 + 37 * self.asked, self.interrupt)

    def interrupt(self) -> None:
        if self.stream is not None:
            self.stopped = time.perf_counter()
            self.cancel()

    def poll(self) -> None:
        if self.root.winfo_exists():
            super().poll()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--cancels", type=int, default=10)
    options = parser.parse_args()
    root = tkinter.Tk()
    window = Watched(root, options.model, options.answers, options.cancels)
    root.mainloop()
    late = sum(seconds > LATE for seconds in window.lateness)
    print(
        f"{len(window.lateness)} ticks while answering, {late} more than {LATE * 1e3:.0f} ms late "
        f"({late / max(1, len(window.lateness)):.1%}), the latest {max(window.lateness, default=0) * 1e3:.0f} ms; "
        f"{len(window.stops)} stops acted within {max(window.stops, default=0) * 1e3:.0f} ms"
    )
    return 1 if late > 0.01 * len(window.lateness) or max(window.stops, default=0) > SLOW else 0


if __name__ == "__main__":
    sys.exit(main())
