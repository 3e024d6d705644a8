"""A child process that renders chat templates and says what each took: JSON lists in on stdin, JSON out on stdout."""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pace import slowness

from edgellm.chat import ChatTemplate
from edgellm.errors import TemplateError

MESSAGES = [{"role": "user", "content": "Hi\U0001f600"}, {"role": "assistant", "content": "Hello"}]
TICK = 0.01
STATUS = Path("/proc/self/status")
last = widest = 0.0


def tick(*_: Any) -> None:
    """A signal's handler runs between bytecodes: the widest gap is how long Ctrl-C can be deaf."""
    global last, widest
    now = time.thread_time()
    widest, last = max(widest, now - last), now


def measured(source: str) -> dict[str, Any]:
    global last, widest
    slow = slowness()
    start = last = time.thread_time()
    widest, end = 0.0, "text"
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        ChatTemplate(source, name="some.gguf").render(MESSAGES)
    except TemplateError as error:
        end = str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        tick()
    seconds, slow = last - start, max(slow, slowness())
    return {"seconds": seconds / slow, "deaf": widest / slow, "end": end, "mebibytes": peak() / 1024}


def peak() -> int:
    """KiB. Not from rusage: that of a fresh process begins with the peak of the one that started it."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next(
        (int(line.split()[1]) for line in lines if line.startswith("VmHWM")), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, tick)
    for ordinary in ("{% for m in messages %}{{ m.role | upper }}{% endfor %}", "{{ messages | tojson(indent=2) }}"):
        measured(ordinary)
    json.dump([measured(source) for source in ["", *json.load(sys.stdin)]], sys.stdout)
