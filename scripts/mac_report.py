"""Tries everything that needs a Mac's GPU, measures speed, memory and energy, and writes a Markdown page to paste into an issue.

    pip install -e ".[mlx,dev]" mlx-lm
    python scripts/mac_report.py                      # random weights in the shapes of a small model
    python scripts/mac_report.py model.gguf           # also a file of yours, beside llama-bench where that is installed
    sudo -v && python scripts/mac_report.py           # with watts, which powermetrics tells root only

Nothing is sent anywhere. What is missing here (Metal, mlx_lm, llama-bench, powermetrics) is named on the page and left out.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mlx.core as mx
import numpy as np

from edgellm.backends.mlx.grid_matrix import decoded, kernel_works, product
from edgellm.backends.mlx.octets import DEFINITIONS
from edgellm.formats.codecs import CODECS

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS = 4096, 4096
WATTS = re.compile(r"(CPU|GPU|ANE|Combined) Power[^:]*: (\d+) mW")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file or an MLX folder")
    parser.add_argument("--output", type=Path, default=Path("mac-report.md"))
    parser.add_argument("--shape", default="qwen3-0.6b", help="of the random weights; see bench_mlx.py")
    parser.add_argument("--quick", action="store_true", help="no tests, and fewer tokens")
    options = parser.parse_args()
    sections: list[tuple[str, Callable[[], Iterator[str]]]] = [
        ("Machine", machine),
        ("Kernels of ours on Metal", kernels),
        ("Tests", lambda: tests(options.quick)),
        ("Beside mlx_lm", lambda: beside_mlx_lm(options)),
        ("Several conversations", lambda: conversations(options)),
        ("A file of yours", lambda: beside_llama_cpp(options)),
    ]
    lines = ["# edgellm on a Mac", ""]
    for title, section in sections:
        print(f"{title} ...", file=sys.stderr, flush=True)
        lines += [f"## {title}", "", *section(), ""]
        options.output.write_text("\n".join(lines), encoding="utf-8")  # in case the next one crashes
    print(f"wrote {options.output}", file=sys.stderr)


def machine() -> Iterator[str]:
    info = mx.device_info()
    yield f"- {platform.platform()}, Python {platform.python_version()}"
    chip = output(["sysctl", "-n", "machdep.cpu.brand_string"]).strip() or platform.processor() or platform.machine()
    yield f"- {chip}, GPU: {'Metal' if mx.metal.is_available() else 'no Metal here'}"
    yield from (f"- {key}: {value}" for key, value in sorted(info.items()))
    for name in ("edgellm", "mlx", "mlx-lm"):
        try:
            yield f"- {name} {version(name)}"
        except PackageNotFoundError:
            yield f"- {name} is not installed"
    yield f"- commit {output(['git', '-C', str(ROOT), 'rev-parse', '--short', 'HEAD']).strip() or 'unknown'}"


def kernels() -> Iterator[str]:
    """Of each type its kernel's verdict, and the speed of one vector by it and by tables."""
    yield "| type | kernel | GB/s | tables, GB/s |"
    yield "| --- | --- | ---: | ---: |"
    rng = np.random.default_rng(0)
    for kind in DEFINITIONS:
        few = CODECS[kind].quantize(rng.standard_normal((16, COLUMNS)).astype(np.float32))
        raw, x = mx.array(np.tile(few, (ROWS // 16, 1))), mx.array(rng.standard_normal((1, COLUMNS)).astype(np.float32))
        works, first = mx.metal.is_available() and kernel_works(kind), mx.zeros((1,), mx.uint32)
        tables = speed(lambda raw=raw, kind=kind, x=x: x @ decoded(raw, kind).T, raw.nbytes)
        own = speed(lambda raw=raw, kind=kind, x=x, first=first: product(raw, kind, x, first, ROWS), raw.nbytes) if works else 0.0
        verdict = "agrees" if works else "**differs or fails**" if mx.metal.is_available() else "no Metal here"
        yield f"| {kind} | {verdict} | {own / 1e9:.1f} | {tables / 1e9:.2f} |"


def speed(product_of: Callable[[], mx.array], nbytes: int) -> float:
    """Bytes of weights per second, the median of several passes."""
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        mx.eval(product_of())
        seconds.append(time.perf_counter() - started)
    return nbytes / statistics.median(seconds[1:])


def tests(quick: bool) -> Iterator[str]:
    if quick:
        yield "Left out (`--quick`)."
        return
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(ROOT / "tests" / "backends" / "mlx")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    yield from ("```", *(run.stdout.strip().splitlines()[-25:] or run.stderr.strip().splitlines()[-5:]), "```")


def beside_mlx_lm(options: argparse.Namespace) -> Iterator[str]:
    command = [sys.executable, str(ROOT / "scripts" / "bench_mlx.py"), "--shape", options.shape]
    command += ["-p", "32", "-n", "4", "-r", "1"] if options.quick else []
    if options.model is not None and options.model.is_dir():
        command.append(str(options.model))
    yield from measured(command)


def conversations(options: argparse.Namespace) -> Iterator[str]:
    n = ["--rounds", "1", "-n", "4", "--conversations", "1", "2"] if options.quick else ["--conversations", "1", "2", "4", "8"]
    yield from measured([sys.executable, str(ROOT / "scripts" / "bench_mlx.py"), "--shape", options.shape, "-p", "16", *n])


def beside_llama_cpp(options: argparse.Namespace) -> Iterator[str]:
    if options.model is None or options.model.is_dir():
        yield "No GGUF file was given."
        return
    for backend in ("mlx", "cpu"):
        yield f"`edgellm bench --backend {backend}`:"
        yield from measured([sys.executable, "-m", "edgellm", "bench", str(options.model), "--backend", backend])
    if shutil.which("llama-bench") is None:
        yield "llama-bench is not installed (brew install llama.cpp)."
        return
    yield "`llama-bench`:"
    yield from measured(["llama-bench", "-m", str(options.model)])


def measured(command: list[str]) -> Iterator[str]:
    """A command's output, and the mean power meanwhile where powermetrics may be asked."""
    with Power() as power:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    text = run.stdout.strip() or "\n".join(run.stderr.strip().splitlines()[-3:])
    yield from (text.splitlines() if run.returncode == 0 else ("```", text, f"exit code {run.returncode}", "```"))
    yield ""
    yield power.line()


class Power:
    """Samples of powermetrics while something runs."""

    def __init__(self) -> None:
        self._samples: dict[str, list[float]] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Power:
        if shutil.which("powermetrics") and shutil.which("sudo") and output(["sudo", "-n", "echo", "yes"]).strip() == "yes":
            command = ["sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power", "-i", "1000"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if found := WATTS.match(line):
                self._samples.setdefault(found[1], []).append(int(found[2]) / 1000)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            subprocess.run(["sudo", "-n", "kill", str(self._process.pid)], check=False, capture_output=True)

    def line(self) -> str:
        if self._process is None:
            return "Power was not measured: powermetrics needs macOS and root (`sudo -v` before)."
        return "Power: " + ", ".join(f"{name} {statistics.mean(watts):.1f} W" for name, watts in sorted(self._samples.items()))


def output(command: list[str]) -> str:
    """A command's output; "" where there is none, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    main()
