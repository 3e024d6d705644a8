"""Declaration of an op, for verification, passes, the reference and all back ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.graph import Graph, Node, Rows, Value

Array: TypeAlias = npt.NDArray[np.float32]
Positions: TypeAlias = npt.NDArray[np.int64]
Effect = Literal[None, "read", "write", "update"]
Role = Literal["matrix", "vector", "table", "experts", "heads", "transposed"]
Inputs: TypeAlias = Sequence[Node]  # the nodes whose values a node takes
Faults: TypeAlias = Iterator[str]


class GraphError(ValueError):
    """A graph that breaks the op table: a fault of an architecture file or a pass, never of a model file."""


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight that a node needs. `role`: all of a matrix is multiplied, single rows of a table are looked up;
    experts and heads are a matrix for each. A transposed matrix has a column for each output.

    `active`: the part of its bytes that computing one token reads, on average.
    """

    name: str
    shape: tuple[int, ...]  # as NumPy has it: (rows, columns), (n,)
    role: Role
    active: float = 1.0


Uses: TypeAlias = tuple[WeightUse, ...]


@dataclass(frozen=True, slots=True)
class Patches:
    """Patches of images, which are the rows of an encoder's step."""

    pixels: Array  # (T, 3 * side * side): of each patch its three colours, normalised
    places: Positions  # (T, 2): its row and column on the grid of its image
    grids: Positions  # (T, 2): rows and columns of that grid
    windows: Positions  # (T,): the window that it belongs to; those of a window follow each other
    outputs: Positions  # (R,): the first of the patches that become each row that leaves the encoder
    queries: int = 0  # of the rows at the end, which no row sees; their places are (-1, -1 - number)
    ordered: int = 0  # of the rows at the end, which see those before them and which none of those sees; of the same places

    def part(self, first: int, end: int) -> Patches:
        """Those of some rows."""
        rows, mine = slice(first, end), (self.outputs >= first) & (self.outputs < end)
        return Patches(self.pixels[rows], self.places[rows], self.grids[rows], self.windows[rows], self.outputs[mine] - first)


@dataclass(frozen=True, slots=True)
class Given:
    """Vectors in the place of tokens, as an encoder made them, and the coordinates that they turn by."""

    which: npt.NDArray[np.int32]  # (T,): the row of `rows` that a token is; -1 for one that is looked up
    rows: Array  # (n, width): what replaces the embedding, then what is added after the first layers
    coordinates: Positions | None = None  # (T, axes); None: positions
    images: npt.NDArray[np.int32] | None = None  # (T,): the image whose rows a token sees both ways, -1: none; None: all causal

    def part(self, first: int, end: int) -> Given:
        """Those of some tokens, with the rows that these are."""
        which = self.which[first:end]
        used = which[which >= 0]
        low, high = (int(used.min()), int(used.max()) + 1) if len(used) else (0, 0)
        coordinates = None if self.coordinates is None else self.coordinates[first:end]
        images = None if self.images is None else self.images[first:end]
        return Given(np.where(which < 0, which, which - np.int32(low)), self.rows[low:high], coordinates, images)

    def around(self) -> tuple[Positions, Positions]:
        """(T,) how many rows of its own image come before each token, and after it."""
        own = np.arange(len(self.which))
        if self.images is None:
            return np.zeros_like(own), np.zeros_like(own)
        last = np.flatnonzero(np.diff(self.images, append=-2))  # where runs of a number end
        run = np.searchsorted(last, own)
        first = np.concatenate([[0], last[:-1] + 1])
        plain = self.images < 0
        return np.where(plain, 0, own - first[run]), np.where(plain, 0, last[run] - own)


class Run(Protocol):
    """The sequence that the reference of an op runs over."""

    graph: Graph
    tokens: Positions  # (T,)
    positions: Positions  # (T,)
    coordinates: Positions | None  # (T, axes), where a token has more than its position
    patches: Patches | None  # where the rows are those of an image
    given: Given | None  # where some of the tokens are vectors
    types: Positions  # (T,) 1 in the second text of a pair
    adapters: Positions  # (T,) the set of adapters of each row's conversation
    held: dict[int, Any]  # by state: whatever the ops that share it agree on

    def weight(self, name: str) -> Array: ...


class Check(Protocol):
    """Faults of a node, beside those that the fields of its OpSpec describe."""

    def __call__(self, node: Node, inputs: Inputs, graph: Graph) -> Faults: ...


def same_length(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    """The check of ops whose rows are as long as those of their inputs."""
    if any(x.n != node.n for x in inputs):
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}"


def no_weights(node: Node, inputs: Inputs) -> Uses:
    return ()


def vectors(names: Iterable[str], *shape: int) -> Uses:
    """Weights of one shape that are not multiplied as a matrix is."""
    return tuple(WeightUse(name, shape, "vector") for name in names)


def of_columns(node: Node, inputs: Inputs) -> Uses:
    """Weights with a number for each column of the result."""
    return vectors(node.weights, node.n)


def integer(node: Node, attr: str, *, least: int = 1) -> int:
    """An attribute that must be an integer. Raises GraphError."""
    value = node.attrs[attr]
    if not isinstance(value, int) or value < least:
        raise GraphError(f"{node.op}: {attr} cannot be {value}")
    return value


def number(node: Node, attr: str) -> float:
    value = node.attrs[attr]
    assert isinstance(value, (int, float))
    return value


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op. Whoever walks a graph asks these fields, and never for the op's name.

    reference: its value in NumPy, (run, node, *inputs) -> (rows, n) f32.
    weights: what it needs of the file, from the node and its input nodes; `weight_counts`: how many names a node may have.
    rows: the kind of rows that it gives where that is not its inputs'.
    effect: what it does to the state that its attribute `state` names. "update" reads and replaces it.
    is_view: whether its value can be columns of its input, without a copy.
    by_rows: each row follows from the same rows of the inputs and from attributes alone, so that the CPU needs a kernel in
      kernels/rowwise/, named like the op's file, and no emitter.
    bounded: whether the size of its values is bounded, whatever the inputs are.
    fuse: the node that can take a node's place, or None; gets the graph and how often each value is used.
    """

    name: str
    reference: Callable[..., Array]
    inputs: tuple[int, ...] = (1,)  # allowed numbers of inputs
    attrs: Set[str] = frozenset()
    check: Check = same_length
    weights: Callable[[Node, Sequence[Node]], tuple[WeightUse, ...]] = no_weights
    weight_counts: tuple[int, ...] = (0,)
    rows: Rows | None = None
    effect: Effect = None
    is_view: bool = False
    by_rows: bool = False
    bounded: bool = False
    fuse: Callable[[Node, Graph, Counter[Value]], Node | None] | None = None
