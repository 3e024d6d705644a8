"""Kernel calls of a plan: signatures, which emitters and kernels share, and records, which say how threads divide the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.barriers import (
    REPLICATED,
    Partition,
    Use,
    partition_of_columns,
    partition_of_kept,
    partition_of_one,
    partition_of_rows,
)
from edgellm.backends.cpu.buffers import MODES, Argument, Mode, Value

if TYPE_CHECKING:
    from edgellm.backends.cpu.simd import Isa


class Signature:
    """The arguments of a kernel by name, in order; `step` is the word before them that all records have."""

    def __init__(self, names: str) -> None:
        self.names = tuple(names.split())
        self._index = {"step": abi.STEP} | {name: abi.FIRST_ARGUMENT + i for i, name in enumerate(self.names)}
        assert len(self.names) <= abi.MOST_ARGUMENTS and len(self._index) == len(self.names) + 1, names

    def __call__(self, **arguments: Argument | Value | None) -> tuple[Argument, ...]:
        """The words of a record, each given by its name. A value `x` fills in `x_stride`, too; None is a missing value."""
        words = dict[str, Argument]()
        for name, argument in arguments.items():
            stride = f"{name}_stride"
            if stride in self._index and stride not in arguments:
                assert argument is None or isinstance(argument, Value), name
                words[name], words[stride] = (argument.at, argument.stride) if argument else (0, 0)
            else:
                assert argument is not None
                words[name] = argument.at if isinstance(argument, Value) else argument
        assert words.keys() == set(self.names), sorted(words.keys() ^ set(self.names))
        return tuple(words[name] for name in self.names)

    def record(self, **arguments: int) -> npt.NDArray[np.int64]:
        """A record by itself; words that are not named are 0."""
        record = np.zeros(abi.RECORD_WORDS, np.int64)
        for name, value in arguments.items():
            record[self._index[name]] = value
        return record

    def at(self, name: str) -> int:
        """Byte offset of a word in the record."""
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


def row_signature(inputs: int, *attrs: str) -> Signature:
    """The arguments of ops that compute rows from the same rows of their inputs: of each input its values and how many a row has, 0
    for one that a node lacks; the result; the attributes in alphabetical order; the word that counts rows.
    """
    values = " ".join(f"x{i} x{i}_stride n{i}" for i in range(inputs))
    return Signature(f"{values} out out_stride n {' '.join(sorted(attrs))} count")


@dataclass(frozen=True, slots=True)
class Record:
    """A kernel, its arguments, its operands (values, or other objects that name memory), and how threads divide them.

    `reads`: operands of which each thread reads the part that it also writes; `reads_all`: of which it may read everything.
    `pieces`: how many equal pieces of a single row threads share, REPLICATED where each computes all of it, None where they divide
    it in another way. `by_rows`: they share several rows row by row; `by_columns`: or each computes some columns of all rows, and
    the name of the way in which kernels divide columns. `by_thread`: a thread's number means more than which part is its own.
    `modes`: the tables that have the record.
    """

    kernel: str
    arguments: tuple[Argument, ...]
    reads: tuple[Value | object, ...] = ()
    reads_all: tuple[Value | object, ...] = ()
    writes: tuple[Value | object, ...] = ()
    pieces: int | None = None
    by_rows: bool = False
    by_columns: str = ""
    by_thread: bool = False
    modes: tuple[Mode, ...] = MODES
    weight_bytes: int = 0  # read once a step, or for each token of it
    weight_rows: int | None = None  # that threads share in steps of several tokens; None: as many as pieces
    weights: int | None = None  # address of weights that threads share row by row, a piece each
    key_bytes: int = 0  # read for each key that a token sees
    memory_class: int | None = None  # in which those keys are

    @property
    def replicated(self) -> bool:
        """True if every thread computes all of it in a step of one token."""
        return self.pieces == REPLICATED

    def uses(self, threads: int, *, single: bool) -> list[Use]:
        """The buffers that it touches in a step of a `single` token by so many threads, or in one of several."""
        found = list[Use]()
        for operands, divided, writes in ((self.reads, True, False), (self.reads_all, False, False), (self.writes, True, True)):
            for operand in operands:
                partition: Partition = None
                if isinstance(operand, Value):
                    assert operand.replicated or not writes or not self.replicated
                    if single:
                        partition = partition_of_one(operand, self.pieces if divided else None, threads)
                    elif divided and self.by_rows:
                        partition = partition_of_rows(operand)
                    elif divided and self.by_columns:
                        partition = partition_of_columns(operand, self.by_columns)
                elif divided and single:
                    partition = partition_of_kept(self.pieces, threads)
                found.append(Use(buffer_of(operand), partition, writes))
        return found


def buffer_of(operand: Value | object) -> object:
    """Key of an operand's memory in hazards."""
    return operand.buffer if isinstance(operand, Value) else operand
