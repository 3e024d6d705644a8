"""Kernels of recurrent states against the ops' references, in one piece, in pieces and token by token, on every ISA level."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import FLOAT_LEVELS

from edgellm.backends.cpu import jit
from edgellm.backends.cpu.ops._table import float_word
from edgellm.backends.cpu.ops.recurrent import DELTA_NET, KDA, SSM_SCAN, rates_by_blocks
from edgellm.backends.cpu.ops.rwkv import SCRATCH_ROWS, SCRATCH_ROWS_6, WKV6, WKV7
from edgellm.backends.cpu.record import Signature
from edgellm.graph import Node
from edgellm.ops import OPS

Array = npt.NDArray[np.float32]
TOKENS, PAGES = 61, 5
CUTS = {"one piece": (TOKENS,), "sevens": (7,) * 8 + (5,), "ones": (1,) * TOKENS}


@dataclass(frozen=True)
class Case:
    """A scan. `inputs`, `weights`: by the words that name them, in the op's order; `given`: weights as the kernel has them."""

    kernel: str
    words: Signature
    op: str
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    n: int
    attrs: Mapping[str, Any]
    numbers: Mapping[str, int]
    given: Mapping[str, Array]
    state_floats: int

    def wanted(self) -> Array:
        node = Node(self.op, (), "T", self.n, tuple(self.weights), {"state": 0, **self.attrs})
        return OPS[self.op].reference(SimpleNamespace(weight=self.weights.__getitem__), node, *self.inputs.values())

    def run(self, address: int, cut: tuple[int, ...], threads: int) -> Array:
        """The kernel's results. The last tokens of a piece have a page of states each, those before them share the first."""
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
        pages, out = np.full((PAGES, self.state_floats), np.nan, np.float32), np.full((TOKENS, self.n), np.nan, np.float32)
        words = {**self.numbers, "out": out, **self.weights, **self.given, **self.inputs}
        words |= {f"{name}_stride": words[name].strides[0] for name in ("out", *self.inputs)}
        held, start = np.zeros(self.state_floats, np.float32), 0
        for n in cut:
            rolling = min(n, PAGES - 1)
            free = [page for page in range(PAGES) if not np.shares_memory(pages[page], held)][:rolling]
            targets = np.zeros((n, 2), np.int64)
            targets[:, 1] = [pages[free[max(0, rolling - n + i)]].ctypes.data for i in range(n)]
            targets[0, 0], targets[1:, 0] = held.ctypes.data, targets[:-1, 1]
            step, segments = np.array([n, 1, 1, 0, 0, 0, 0, 0], np.int64), np.array([[0, n]], np.int64)
            record = self.words.record(
                step=step.ctypes.data,
                targets=targets.ctypes.data,
                segments=segments.ctypes.data,
                **{
                    name: word if isinstance(word, int) else word.ctypes.data
                    for name, word in words.items()
                    if name in self.words.names
                },
            )
            for name in ("out", *self.inputs):
                record[self.words.at(name) // 8] += start * words[f"{name}_stride"]
            for thread in range(threads):
                kernel(record.ctypes.data, thread, threads)
            held, start = pages[free[-1]], start + n
        return out


def ssm_scan(heads: int, of_head: int, groups: int, d_state: int) -> Case:
    """Decays from nearly 1 to nearly 0."""
    rng, n = np.random.default_rng(heads), heads * of_head
    x, dt, b, c = (rng.standard_normal((TOKENS, n), np.float32) for n in (n, heads, groups * d_state, groups * d_state))
    inputs = {"x": x, "dt": 4 * dt, "b": b, "c": c}
    a = -np.exp(rng.uniform(-5, 2, (heads, d_state if of_head == 1 else 1))).astype(np.float32)
    weights = {"a": a, "d": rng.standard_normal((heads, 1), np.float32)}
    bias, variant = ({}, "columns") if of_head == 1 else ({"bias": rng.standard_normal(heads, np.float32)}, "heads")
    return Case(
        f"ssm_scan:{variant}",
        SSM_SCAN,
        "ssm_scan",
        inputs,
        weights | bias,
        n,
        {"heads": heads, "d_state": d_state},
        {"heads": heads, "n": n, "d_state": d_state, "groups": groups},
        {} if bias else {"a": rates_by_blocks(a, groups)},
        n * (d_state + 1),
    )


def delta_net(dim_k: int, dim_v: int, *, grouped: bool) -> Case:
    rng, k_heads, v_heads = np.random.default_rng(dim_v), 2, 4
    widths = (2 * k_heads * dim_k + v_heads * dim_v, v_heads, v_heads)
    x, alpha, beta = (rng.standard_normal((TOKENS, n), np.float32) for n in widths)
    inputs = {"x": x, "alpha": 4 * alpha, "beta": beta}
    weights = {"a": -np.exp(rng.uniform(-5, 2, v_heads)).astype(np.float32), "dt": rng.standard_normal(v_heads, np.float32)}
    sizes = {"k_heads": k_heads, "v_heads": v_heads, "dim_k": dim_k, "dim_v": dim_v}
    return Case(
        f"delta_net:{'narrow' if dim_v % 32 else 'wide'}",
        DELTA_NET,
        "delta_net",
        inputs,
        weights,
        v_heads * dim_v,
        {**sizes, "grouped": grouped, "eps": 1e-6},
        {**sizes, "grouped": int(grouped), "eps": float_word(1e-6)},
        {},
        v_heads * dim_v * (dim_k + 1),
    )


def wkv6(heads: int, kv_heads: int, dim: int, *, first: bool) -> Case:
    """Decays from nearly 1 to nearly 0."""
    rng, n = np.random.default_rng(dim), heads * dim
    inputs = {name: rng.standard_normal((TOKENS, n if name in "rw" else kv_heads * dim), np.float32) for name in "rwkv"}
    inputs["w"] = 2 * inputs["w"] - 1
    weights = {"first": rng.standard_normal((heads, dim), np.float32)} if first else {}
    sizes = {"heads": heads, "kv_heads": kv_heads, "dim": dim}
    return Case(
        f"wkv6:{'narrow' if dim % 16 else 'wide'}",
        WKV6,
        "wkv6",
        inputs,
        weights,
        n,
        {"heads": heads},
        sizes,
        {"scratch": np.zeros(SCRATCH_ROWS_6 * dim, np.float32)},
        n * dim,
    )


def wkv7(heads: int, dim: int, *, norm: bool = True) -> Case:
    rng, n = np.random.default_rng(dim), heads * dim
    inputs = {name: rng.standard_normal((TOKENS, n), np.float32) for name in ("r", "w", "k", "v", "a", "first", "gate")}
    inputs["w"] += 3  # factors get small after some fifty tokens
    weights = {name: rng.standard_normal(n, np.float32) for name in ("k_k", "k_a", "r_k", "scale", "shift")[: 5 if norm else 3]}
    return Case(
        f"wkv7:{'narrow' if dim % 16 else 'wide'}",
        WKV7,
        "wkv7",
        inputs,
        weights,
        n,
        {"heads": heads, "eps": 64e-5},
        {"heads": heads, "dim": dim, "eps": float_word(64e-5), "normal": int(norm)},
        {"weights": np.stack([*weights.values()]), "scratch": np.zeros(SCRATCH_ROWS * dim, np.float32)},
        n * (dim + 1),
    )


def kda(heads: int, dim: int) -> Case:
    """Decays from nearly 1 to nearly 0, each dim its own."""
    rng, n = np.random.default_rng(dim), heads * dim
    inputs = {name: rng.standard_normal((TOKENS, n), np.float32) for name in "qkv"}
    inputs |= {
        "decay": rng.uniform(0, 1, (TOKENS, n)).astype(np.float32) ** 2,
        "beta": rng.standard_normal((TOKENS, heads), np.float32),
    }
    return Case(
        f"kda:{'narrow' if dim % 32 else 'wide'}",
        KDA,
        "kda",
        inputs,
        {},
        n,
        {"heads": heads, "eps": 1e-6},
        {"heads": heads, "dim": dim, "eps": float_word(1e-6)},
        {},
        n * dim,
    )


CASES: Mapping[str, Callable[[], Case]] = {
    "mamba": lambda: ssm_scan(64, 1, 1, 16),
    "mamba, odd": lambda: ssm_scan(46, 1, 2, 24),
    "mamba 2": lambda: ssm_scan(4, 64, 1, 128),
    "mamba 2, odd": lambda: ssm_scan(4, 75, 2, 24),
    "delta net": lambda: delta_net(16, 64, grouped=False),
    "delta net, odd": lambda: delta_net(16, 96, grouped=True),
    "delta net, narrow": lambda: delta_net(24, 40, grouped=True),
    "kda": lambda: kda(3, 64),
    "kda, narrow": lambda: kda(5, 24),
    "rwkv 6": lambda: wkv6(3, 3, 64, first=True),
    "rwkv 6, narrow": lambda: wkv6(6, 6, 24, first=True),
    "rwkv 6, shared keys": lambda: wkv6(6, 2, 32, first=False),
    "rwkv 7": lambda: wkv7(3, 64),
    "rwkv 7, odd": lambda: wkv7(3, 48),
    "rwkv 7, narrow": lambda: wkv7(5, 24),
    "rwkv 7, no norm": lambda: wkv7(3, 32, norm=False),
}


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_scans_are_the_same_in_all_pieces(name: str, isa: str) -> None:
    """Within 2e-6 of the largest value (measured 5e-7), and bit for bit whatever the pieces and threads are."""
    case, linker = CASES[name](), jit.Linker()
    address, wanted = jit.kernel_addresses([case.kernel], isa, linker)[case.kernel], case.wanted()
    whole = case.run(address, CUTS["one piece"], 1)
    assert np.abs(whole - wanted).max() < 2e-6 * np.abs(wanted).max()
    for cut in CUTS.values():
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(case.run(address, cut, threads), whole)
