"""Names for the argument words of a kernel's records, shared by the emitter that fills them and the kernel that reads them."""
from __future__ import annotations

from typing import TYPE_CHECKING

from edgellm.backends.cpu import abi

if TYPE_CHECKING:
    from edgellm.backends.cpu.buffers import Own


class Words:
    """The arguments of one kernel in their order, by name."""

    def __init__(self, names: str) -> None:
        self._names = names.split()
        assert len(self._names) <= abi.MOST_ARGUMENTS and len(set(self._names)) == len(self._names)

    def __call__(self, **arguments: int | Own) -> tuple[int | Own, ...]:
        """The words of a record, each given by its name."""
        assert arguments.keys() == set(self._names), sorted(arguments.keys() ^ set(self._names))
        return tuple(arguments[name] for name in self._names)

    def at(self, name: str) -> int:
        """Byte in the record at which a word stands."""
        return 8 * (abi.FIRST_ARGUMENT + self._names.index(name))

    def offsets(self, names: str) -> tuple[int, ...]:
        """`at` for several names."""
        return tuple(self.at(name) for name in names.split())


KV_STORE = Words("k k_stride v v_stride targets keys_at values_at n_kv dim_k dim_v")
ATTENTION = Words("q q_stride q_sink q_sink_stride out out_stride spans work n_kv queries dim_k dim_v scale softcap ring sinks "
                  "sink_slots keys_at values_at partials partial_bytes scratch scratch_bytes")
