"""Names for the argument words of a kernel's records, shared by the emitter that fills them and the kernel that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi

if TYPE_CHECKING:
    from edgellm.backends.cpu.buffers import Argument
    from edgellm.backends.cpu.simd import Isa


class Words:
    """The arguments of one kernel in their order, by name; `step` is the word before them that all records have."""

    def __init__(self, names: str) -> None:
        self.names = tuple(names.split())
        self._index = {"step": abi.STEP} | {name: abi.FIRST_ARGUMENT + i for i, name in enumerate(self.names)}
        assert len(self.names) <= abi.MOST_ARGUMENTS and len(self._index) == len(self.names) + 1, names

    def __call__(self, **arguments: Argument) -> tuple[Argument, ...]:
        """The words of a record, each given by its name."""
        assert arguments.keys() == set(self.names), sorted(arguments.keys() ^ set(self.names))
        return tuple(arguments[name] for name in self.names)

    def record(self, **arguments: int) -> npt.NDArray[np.int64]:
        """A record by itself; words that are not named are 0."""
        record = np.zeros(abi.RECORD_WORDS, np.int64)
        for name, value in arguments.items():
            record[self._index[name]] = value
        return record

    def at(self, name: str) -> int:
        """Byte in the record at which a word stands."""
        return 8 * self._index[name]

    def offsets(self, names: str) -> tuple[int, ...]:
        """`at` for several names."""
        return tuple(self.at(name) for name in names.split())

    def reader(self, isa: Isa, names: str) -> Any:  # Any: a Numba function has no static type
        """A Numba function of a record's address that gives these words, all integers, as a tuple."""
        from numba import types

        from edgellm.backends.cpu.simd.base import I64

        offsets = self.offsets(names)
        return isa.make(
            "arguments",
            types.UniTuple(types.int64, len(offsets)),
            (types.int64,),
            lambda e, op: [e.load(I64, op, offset) for offset in offsets],
        )


# `targets`: addresses of a token's pages of states, before it and after it; `state_at`: bytes at which a layer's own begins there.
# `count`: the word of the step block that says how many rows there are; strides: bytes from row to row.
EMBED = Words("table row_bytes n ids out out_stride")
NORM = Words("x x_stride out out_stride scale scale_stride bias n groups eps count")
# `act`: 0 where the residual is added; else, with quantised weights only, that is a gate, whose activation multiplies the sum. It
# is 1 + its place in GATES_OF_PRODUCTS.
# `whole_tiles`: 1 where rows of activations have no memory after them for the rest of a tile; see traits.py.
MATMUL = Words("weights row_bytes n k x x_stride out out_stride bias residual residual_stride act count scratch whole_tiles")
QUANTISE = Words("x x_stride k out out_stride count")
ROPE = Words("x x_stride out out_stride cos sin heads dim n_rot")
# `value`: a constant as f32; of xielu the address of four.
ELEMENTWISE = Words("a a_stride b b_stride out out_stride n value count")
SELECT = Words("x x_stride out out_stride wanted n")
POOL = Words("x x_stride out out_stride segments n")
TOPK = Words("x x_stride out out_stride chosen chosen_stride bias n k normalise scale groups groups_used count")
BUCKETS = Words("chosen chosen_stride out experts k count")
EXPERT_ROWS = Words("x x_stride slot_bytes k out row_bytes slots buckets experts count")  # slot_bytes 0: all have the same
EXPERTS = Words(
    "kernel weights row_bytes expert_bytes n k x x_row_bytes x_slots out out_stride bias bias_bytes slots chosen "
    "buckets experts gates gates_stride count scratch work work_floats unit"
)
REPACK = Words("source row_bytes n k out")
GATED_BY = Words("y y_stride x x_stride out out_stride weight n k count")
READ = Words("data nbytes seen")  # `seen` receives a value that depends on every byte
KV_STORE = Words("k k_stride v v_stride targets keys_at values_at n_kv dim_k dim_v")
COLUMNS = Words("x x_stride out out_stride pieces width first n count")
DELTA_NET = Words(
    "x x_stride alpha alpha_stride beta beta_stride out out_stride a dt k_heads v_heads dim_k dim_v grouped eps "
    "targets state_at segments"
)
SSM_SCAN = Words(
    "x x_stride dt dt_stride b b_stride c c_stride out out_stride a d bias heads n d_state groups targets state_at segments"
)
CONV = Words("x x_stride out out_stride weights bias n size targets state_at segments")
ATTENTION = Words(
    "q q_stride q_sink q_sink_stride out out_stride spans work n_kv queries dim_k dim_v scale softcap slopes ring "
    "sinks sink_slots keys_at values_at partials partial_bytes scratch scratch_bytes learned"
)
