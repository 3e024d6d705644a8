"""Object code of compiled kernels on disk: a private folder per machine and source state, every file under a keyed digest."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import os
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgellm import folders
from edgellm.backends.cpu import system
from edgellm.backends.cpu.jit.sources import sources_digest

MAGIC = b"edgellm kernel 1"
MAX_OBJECT = 1 << 26  # 64 MiB: no kernel comes near it
KEPT_FOLDERS = 8  # of other versions and ISA levels; older ones go when a new one is made
KEPT_OBJECTS = 4  # of one kernel, of other states of its sources
VERSION = re.compile(r"""\bversion(?:_version)?"? *[:=] *["'](\d+\.[^"']+)["']""")
_DIGEST = 32


@dataclass(frozen=True, slots=True)
class KernelObject:
    """One kernel: the symbol to look up and the object file that defines it."""

    symbol: str
    code: bytes


class ObjectCache:
    """Reads and writes kernel objects. A damaged or foreign file reads as missing; a folder that cannot be trusted or written
    is replaced by a temporary one, so that kernels are compiled again at each start: that costs time only, and `note` says so.
    """

    def __init__(self, isa: str, base: Path | None = None) -> None:
        self.note = ""
        self._temporary = False
        base = base if base is not None else folders.user_cache() / "kernels"
        self.folder = base / cache_key(isa)
        try:
            self._make_private(base)
            if not self.folder.exists():
                _forget_old(base)
            self._make_private(self.folder)
            self._key = self._shared_key(base)
        except OSError as fault:
            self.note = f"the kernel cache {base} cannot be used ({fault.strerror or fault}), so kernels are compiled at each start"
            self.folder = Path(tempfile.mkdtemp(prefix="edgellm-kernels-"))
            self._temporary = True
            self._key = self._shared_key(self.folder)

    @staticmethod
    def _make_private(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not folders.is_private(folder):
            raise OSError(0, "it is not a folder that only you can write")

    @staticmethod
    def _shared_key(folder: Path) -> bytes:
        """The user's own key, made once: a file placed here by another user has no valid digest."""
        path = folder / "key"
        for _ in range(2):
            try:
                key = path.read_bytes()
                if len(key) == _DIGEST:
                    return key
                path.unlink()
            except FileNotFoundError:
                pass
            fresh = folder / f"key.{os.getpid()}.{secrets.token_hex(4)}"
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_DIGEST))
            try:
                os.link(fresh, path)  # the first process wins; the others read its key
            except FileExistsError:
                pass
            except OSError:  # file systems without hard links
                os.replace(fresh, path)
            fresh.unlink(missing_ok=True)
        return path.read_bytes()

    def _path(self, kernel: str) -> Path:
        return self.folder / f"{kernel.replace(':', '.')}.{sources_digest(kernel.partition(':')[0])}.o"

    def read(self, kernel: str) -> KernelObject | None:
        """The stored object, or None where there is none that can be trusted."""
        try:
            with open(self._path(kernel), "rb") as file:
                data = file.read(MAX_OBJECT)
        except OSError:
            return None
        head = len(MAGIC) + _DIGEST
        body = data[head:]
        if data[: len(MAGIC)] != MAGIC or not hmac.compare_digest(data[len(MAGIC) : head], self._digest(kernel, body)):
            return None
        symbol, _, code = body.partition(b"\n")
        return KernelObject(symbol.decode("ascii"), code)

    def write(self, kernel: str, item: KernelObject) -> None:
        """Store atomically; raises OSError where the disk is full or read-only."""
        body = item.symbol.encode("ascii") + b"\n" + item.code
        path = self._path(kernel)
        fresh = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
        try:
            fresh.write_bytes(MAGIC + self._digest(kernel, body) + body)
            os.replace(fresh, path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        same = [(other.stat().st_mtime, other) for other in self.folder.glob(f"{kernel.replace(':', '.')}.*.o") if other.is_file()]
        for _, other in sorted(same)[:-KEPT_OBJECTS]:
            other.unlink(missing_ok=True)

    def discard(self, kernel: str) -> None:
        self._path(kernel).unlink(missing_ok=True)

    def _digest(self, kernel: str, body: bytes) -> bytes:
        return hmac.digest(self._key, self.folder.name.encode() + kernel.encode() + b"\0" + body, "sha256")

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


def _forget_old(base: Path) -> None:
    folders = sorted((path for path in base.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for folder in folders[: -KEPT_FOLDERS + 1]:
        shutil.rmtree(folder, ignore_errors=True)


def cache_key(isa: str) -> str:
    """Names what all compiled code depends on beside its sources: compiler versions, processor and instruction set."""
    digest = hashlib.sha256()
    for part in (_version("numba"), _version("llvmlite"), system.host_cpu(), isa, *sorted(system.host_features())):
        digest.update(part.encode() + b"\0")
    return f"{isa}-{digest.hexdigest()[:20]}"


def _version(package: str) -> str:
    """The installed version of a compiler package, as its `_version.py` states it; to read its metadata, which a frozen program
    has instead, takes more modules than all else here.
    """
    spec = importlib.util.find_spec(package)
    try:
        with open(os.path.join(os.path.dirname((spec and spec.origin) or ""), "_version.py"), encoding="utf-8") as file:
            stated = VERSION.search(file.read())
    except OSError:
        stated = None
    if stated is not None:
        return stated[1]
    from importlib.metadata import version

    return version(package)
