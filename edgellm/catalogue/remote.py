"""The header of a model that is still on the hub, by a few range requests: enough to say what it is and what it needs."""

from __future__ import annotations

from edgellm.catalogue.hub import Hub, RemoteFile
from edgellm.catalogue.hub_cache import is_projector
from edgellm.catalogue.pull import plan
from edgellm.catalogue.web import Interrupted
from edgellm.errors import DownloadError
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_prefix import Prefix, gguf_from_prefixes

FIRST, MOST = 2 << 20, 64 << 20  # bytes; 150,000 tokens and their merges take 6 to 8 MiB


def open_remote(name: str, hub: Hub | None = None) -> tuple[GGUFFile, int]:
    """The model that a name means, from its header on the hub: metadata and tensors, without the tensors' bytes; and the bytes of
    the projector for images that comes with it.

    Raises ModelNotFound, DownloadError, and the FormatErrors.
    """
    hub = hub or Hub()
    planned = [one.file for one in plan(name, hub)]
    files = [file for file in planned if not is_projector(file.path.rpartition("/")[2])]
    prefixes = [Prefix(f"hf:{file.repository}:{file.path}", b"", file.size) for file in files]
    wanted = FIRST
    while wanted <= MOST:
        prefixes = [_longer(hub, file, prefix, wanted) for file, prefix in zip(files, prefixes, strict=True)]
        if (gguf := gguf_from_prefixes(prefixes)) is not None:
            return gguf, sum(file.size for file in planned) - sum(file.size for file in files)
        wanted *= 4
    raise DownloadError(f"{prefixes[0].name} has a header of more than {MOST >> 20} MiB, as no real model has; take another file")


def _longer(hub: Hub, file: RemoteFile, prefix: Prefix, wanted: int) -> Prefix:
    """The prefix with as many bytes as `wanted`, or all there are."""
    data, end = bytearray(prefix.data), min(wanted, file.size)
    failures = 0
    while len(data) < end:
        try:
            with hub.open(file, len(data), end=end) as answer:
                if answer.status == 200:  # no ranges here: the beginning is what is needed, the rest is not read
                    data.clear()
                while len(data) < end:
                    if not (block := answer.read()):
                        raise Interrupted("the connection ended too early")
                    data += block
        except Interrupted as fault:
            failures += 1
            if failures >= hub.limits.tries:
                raise DownloadError(f"the header of {file.path} could not be read: {fault}; try again later") from fault
            hub.wait(fault, failures)
    return Prefix(prefix.name, bytes(data[:end]), file.size)
