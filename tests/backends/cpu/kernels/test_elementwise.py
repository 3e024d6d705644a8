"""Activation kernels against their formulas in float64, on every ISA level of this machine."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import FLOAT_LEVELS

from edgellm.backends.cpu import jit
from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.ops.dense import ACTIVATIONS

FORMULAS: dict[str, Callable[[float], float]] = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_quick": lambda x: x / (1 + math.exp(-1.702 * x)),
    "relu": lambda x: max(x, 0.0),
    "relu_squared": lambda x: max(x, 0.0) ** 2,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
}
X = np.concatenate([np.linspace(-12, 12, 4999), [0.0, -0.0, 1e-30, -80.0, 300.0]]).astype(np.float32)  # 5004 = 8 n + 4


def run(address: int, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], value: int = 0) -> npt.NDArray[np.float32]:
    """The kernel on one row. `value`: the constant's word."""
    out, step = np.full(len(a), np.nan, np.float32), np.array([1, 1], np.int64)
    record = ELEMENTWISE.record(
        step=step.ctypes.data,
        a=a.ctypes.data,
        a_stride=a.nbytes,
        b=b.ctypes.data,
        b_stride=b.nbytes,
        out=out.ctypes.data,
        out_stride=out.nbytes,
        n=len(a),
        value=value,
    )
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(record.ctypes.data, 0, 1)
    return out


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
def test_activations_and_gates(isa: str) -> None:
    """1e-6 of the larger of 1 and |x|: a few roundings of float32 (measured 2.4e-7). New ones follow the op's reference."""
    assert FORMULAS.keys() <= ACTIVATIONS.keys()
    linker = jit.Linker()
    kernels = [f"elementwise:{gate}{name}" for name in ACTIVATIONS for gate in ("", "glu_")]
    addresses = jit.kernel_addresses(kernels, isa, linker)
    up = np.linspace(-1, 1, len(X), dtype=np.float32)
    for name, reference in ACTIVATIONS.items():
        wanted = np.array([FORMULAS[name](float(x)) for x in X]) if name in FORMULAS else reference(X)
        got = run(addresses[f"elementwise:{name}"], X, X)
        assert np.abs((got - wanted) / np.maximum(1, np.abs(wanted))).max() < 1e-6, name
        gated = run(addresses[f"elementwise:glu_{name}"], X, up)
        assert np.abs((gated - wanted * up) / np.maximum(1, np.abs(wanted))).max() < 1e-6, name
        assert np.isnan(run(addresses[f"elementwise:{name}"], X * np.float32("nan"), X)).all()


def test_gelu_keeps_its_digits_where_it_is_small() -> None:
    """Far below zero the exact gelu is tiny, and 1 + erf would have no digits left."""
    linker, x = jit.Linker(), np.linspace(-6, -1, 512).astype(np.float32)
    got = run(jit.kernel_addresses(["elementwise:gelu_erf"], "generic", linker)["elementwise:gelu_erf"], x, x)
    np.testing.assert_allclose(got, [FORMULAS["gelu_erf"](float(value)) for value in x], rtol=1e-5)


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
def test_clamp_and_xielu(isa: str) -> None:
    """As the references have them; NaN stays NaN."""
    linker = jit.Linker()  # it owns the code
    addresses = jit.kernel_addresses(["elementwise:clamp", "elementwise:xielu"], isa, linker)
    clamp, limit = addresses["elementwise:clamp"], int(np.float32(1.5).view(np.uint32))
    np.testing.assert_array_equal(run(clamp, X, X, limit), np.clip(X, np.float32(-1.5), np.float32(1.5)))
    numbers, x = np.array([1.1, 1.4, 0.5, -1e-6], np.float32), X[np.abs(X) < 13]
    low = np.minimum(x.astype(np.float64), -1e-6)
    wanted = 0.5 * x + 1.1 * np.maximum(x.astype(np.float64), 0) ** 2 + 1.4 * (np.expm1(low) - low)
    got = run(addresses["elementwise:xielu"], x, x, numbers.ctypes.data)
    assert np.abs((got - wanted) / np.maximum(1, np.abs(wanted))).max() < 1e-6
    for address, value in ((clamp, limit), (addresses["elementwise:xielu"], numbers.ctypes.data)):
        assert np.isnan(run(address, X * np.float32("nan"), X, value)).all()
