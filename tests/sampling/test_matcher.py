"""llguidance through its C functions: the masks of its Python classes, and no lock held while a vocabulary's tree is built."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from llguidance import LLMatcher

from edgellm.sampling import matcher
from edgellm.sampling.matcher import _PythonTree, token_tree

PIECES = [*(bytes([each]) for each in range(256)), b'": "', b'", "', b"},", b" the", b"<end>", b""]
END, ENDS = len(PIECES) - 1, [len(PIECES) - 1, len(PIECES) - 2]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}


def tokenize(text: str) -> list[int]:
    return [*text.encode()]


def test_masks_are_those_of_the_python_classes() -> None:
    grammar = LLMatcher.grammar_from_json_schema(SCHEMA)
    trees = token_tree(PIECES, ENDS, [END - 1], tokenize), _PythonTree(PIECES, ENDS, [END - 1], tokenize)
    first, second = (tree.matcher(grammar) for tree in trees)
    masks = [np.zeros((len(PIECES) + 31) // 32, np.uint32) for _ in range(2)]
    for token in [*tokenize('{"a": "x the'), 259, *tokenize('", "b": 12}')]:
        for each, mask in zip((first, second), masks, strict=True):
            each.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        assert (masks[0] == masks[1]).all() and first.validate_tokens([token]) == second.validate_tokens([token]) == 1
        assert first.consume_token(token) and second.consume_token(token) and first.is_accepting() == second.is_accepting()
    assert first.is_stopped() == second.is_stopped() and first.rollback(2) and not first.is_accepting()
    copy = first.deep_copy()
    assert copy.try_consume_tokens(tokenize("2}x")) == 2 and copy.is_accepting() and not first.is_accepting()
    assert not first.is_error() and not first.consume_token(ord("x")) and first.is_error() and first.get_error()


def test_grammars_that_name_tokens_are_checked() -> None:
    tree = token_tree(PIECES, ENDS, [END - 1], tokenize)
    assert tree.check("start: <[300]>")[0] and not tree.check(f"start: <[{END - 1}]>")[0]
    assert b"".join(PIECES[token] for token in tree.tokenize("a the é".encode())) == "a the é".encode()


@pytest.mark.skipif(matcher._functions() is None, reason="this llguidance exports no C functions")
def test_other_threads_run_while_a_tree_is_built() -> None:
    """The longest gap of a thread that ticks, beside the time that building takes."""
    pieces = [*(bytes([each]) for each in range(256)), *(f" w{each:x}".encode() for each in range(60_000)), b""]
    ended, gaps = threading.Event(), list[float]()

    def tick(now: Callable[[], float] = time.perf_counter) -> None:
        last = now()
        while not ended.is_set():
            time.sleep(0.001)
            gaps.append(now() - last)
            last = now()

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.perf_counter()
    token_tree(pieces, [len(pieces) - 1], [], tokenize)
    took = time.perf_counter() - started
    ended.set()
    thread.join()
    assert max(gaps) < took / 3
