"""A checksum of large files at the speed of memory: SHA-256 over the sums of 512-byte blocks, each as 64 words modulo 2^64."""
from __future__ import annotations

import hashlib
from typing import Any  # what has the buffer protocol

import numpy as np

BLOCK = 512                                      # bytes, as disks have them: blocks that are exchanged are found as well
SIZE = hashlib.sha256().digest_size


class Checksum:
    """`update` in pieces of any length; it finds damage, and is no protection against somebody who makes it fit."""

    def __init__(self) -> None:
        self._sha, self._rest, self._length = hashlib.sha256(), b"", 0

    def update(self, data: Any) -> None:
        """Add bytes: anything with the buffer protocol, contiguous."""
        view = memoryview(data).cast("B")
        self._length += len(view)
        if self._rest:
            missing = BLOCK - len(self._rest)
            self._rest += bytes(view[:missing])
            view = view[missing:]
            if len(self._rest) < BLOCK:
                return
            self._blocks(memoryview(self._rest))
        whole = len(view) // BLOCK * BLOCK
        self._blocks(view[:whole])
        self._rest = bytes(view[whole:])

    def _blocks(self, view: memoryview) -> None:
        self._sha.update(np.frombuffer(view, "<u8").reshape(-1, BLOCK // 8).sum(axis=1, dtype=np.uint64).astype("<u8").tobytes())

    def digest(self) -> bytes:
        """Of all that came so far."""
        sha = self._sha.copy()
        sha.update(self._rest + self._length.to_bytes(8, "little"))
        return sha.digest()
