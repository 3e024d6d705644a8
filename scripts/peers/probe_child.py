"""A streaming read for bench_peers.py: THREADS; a line in, 1e9 bytes per second out."""

from __future__ import annotations

import sys

from edgellm.backends.cpu.bandwidth import CpuReadProbe


def main() -> None:
    probe = CpuReadProbe(int(sys.argv[1]))
    for _ in sys.stdin:
        print(probe.measure() / 1e9, flush=True)
    probe.close()


if __name__ == "__main__":
    main()
