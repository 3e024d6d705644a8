"""The longest token at each place of a text: a trie in NumPy arrays, which is walked from all places at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.matcher import LONGEST

AT_ONCE = 1 << 14  # places that are walked from together: their arrays stay in the cache
NO_CODE = (1 << 21) - 1  # of no character; ends every token

Codes = npt.NDArray[np.int64]  # of characters, or bytes


class Trie:
    """Built from tokens by their codes. Those of more than LONGEST are never found.

    An edge is one number, the node that it leaves << 21 | the code. Edges are sorted, and the node that the i-th leads to is i + 1.
    """

    def __init__(self, tokens: Mapping[str, int] | Mapping[bytes, int]) -> None:
        taken = [(key, token) for key, token in tokens.items() if 0 < len(key) <= LONGEST]
        codes = np.concatenate([np.zeros(0, np.int64), *(codes_of(key) for key, _ in taken)])
        lengths = np.array([len(key) for key, _ in taken], np.int64)
        starts, ids = np.cumsum(lengths) - lengths, np.array([token for _, token in taken], np.int64)
        nodes, edges, found = np.zeros(len(taken), np.int64), list[Codes](), list[Codes]()
        count = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > depth)
            level, which = np.unique(nodes[longer] << 21 | codes[starts[longer] + depth], return_inverse=True)
            nodes[longer] = count + which
            count += len(level)
            edges.append(level)
            ends, here = np.flatnonzero(lengths == depth + 1), np.full(len(level), -1, np.int64)
            here[nodes[ends] - count] = ids[ends]
            found.append(here)
        self._edges = np.concatenate([*edges, np.array([NO_CODE << 42])])  # the last one: no search ends behind it
        self._tokens = np.concatenate([np.full(1, -1), *found])  # of nodes; -1: none ends here

    def longest(self, codes: Codes) -> tuple[list[int], list[int]]:
        """For each place the id of the longest token there, -1 for none, and its length, 0 for none."""
        ids, lengths = np.full(len(codes), -1, np.int64), np.zeros(len(codes), np.int64)
        padded = np.append(codes, NO_CODE)
        for start in range(0, len(codes), AT_ONCE):
            places, depth = np.arange(start, min(start + AT_ONCE, len(codes))), 0
            nodes = np.zeros(len(places), np.int64)
            while len(places):
                wanted = nodes << 21 | padded[places + depth]
                at = np.searchsorted(self._edges, wanted)
                there = np.flatnonzero(self._edges[at] == wanted)
                places, nodes = places[there], at[there] + 1
                depth += 1
                ending = self._tokens[nodes]
                whole = ending >= 0
                ids[places[whole]], lengths[places[whole]] = ending[whole], depth
        return ids.tolist(), lengths.tolist()


def codes_of(key: str | bytes) -> Codes:
    """The characters of a text, or bytes."""
    if isinstance(key, bytes):
        return np.frombuffer(key, np.uint8).astype(np.int64)
    return np.frombuffer(key.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
