"""Element by element: add, mul, scale, bounds, the activations, and gated pairs act(gate) * up."""

from __future__ import annotations

from math import sqrt
from types import SimpleNamespace
from typing import Any  # what a Numba function is to the type checker

from numba import types

from edgellm.backends.cpu.kernels import activations
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.kernels.partition import first_item
from edgellm.backends.cpu.kernels.softplus import softplus_of
from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.backends.cpu.simd import F32X8, Isa, KernelFunction, Vec
from edgellm.backends.cpu.simd.base import F32, vector
from edgellm.backends.cpu.simd.table import OPERATIONS

# erfc(z) = t * exp(-z^2 + polynomial in t), t = 1 / (1 + z/2), with a relative error below 1.2e-7 for z >= 0: Press et al.,
# "Numerical Recipes in C", 2nd edition, section 6.2, `erfcc`. From the highest power down.
ERFC = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223)

WIDE = 32  # values that are computed side by side
WIDE_VECTOR = Vec("f32", WIDE)


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_f32, store_f32 = isa("load_i64 load_f32 store_f32")
    load, store, splat = isa("load_f32x8 store_f32x8 splat_f32x8")
    extract, wide = isa.first_f32x8, _wide(isa)
    load_wide, store_wide, splat_wide = wide.load_f32x8, wide.store_f32x8, wide.splat_f32x8
    function, of_wide, value = _functions(isa, F32X8)[variant], _functions(wide, WIDE_VECTOR)[variant], ELEMENTWISE.at("value")
    constants = isa.load_i64 if variant == "xielu" else inline(lambda op, at: splat(load_f32(op, at)))
    of_constants = isa.load_i64 if variant == "xielu" else inline(lambda op, at: splat_wide(load_f32(op, at)))
    arguments = ELEMENTWISE.reader(isa, "step a a_stride b b_stride out out_stride n count")

    def elementwise(op, ith, nth):
        step, a, a_stride, b, b_stride, out, out_stride, n, count = arguments(op)
        rows, constant, wide_constant = load_i64(step, count * 8), constants(op, value), of_constants(op, value)
        at, last = first_item(rows, n, ith, nth), first_item(rows, n, ith + 1, nth)
        while at < last:
            row, j = at // n, at % n
            end = min(n, j + last - at)
            at += end - j
            p, q, t = a + row * a_stride, b + row * b_stride, out + row * out_stride
            while j + WIDE <= end:
                store_wide(t, j * 4, of_wide(load_wide(p, j * 4), load_wide(q, j * 4), wide_constant))
                j += WIDE
            while j + 8 <= end:
                store(t, j * 4, function(load(p, j * 4), load(q, j * 4), constant))
                j += 8
            while j < end:  # by vectors too, so that a value never depends on its place
                store_f32(t, j * 4, extract(function(splat(load_f32(p, j * 4)), splat(load_f32(q, j * 4)), constant)))
                j += 1

    return elementwise


def _wide(isa: Isa) -> Any:
    """The operations of `_functions` on WIDE values: one vector after the other, each would wait for its own operations."""
    kind, pair = WIDE_VECTOR, (types.int64, types.int64)
    made: dict[str, Any] = {"load_f32": isa.load_f32, "make": isa.make}
    for name in ("add", "sub", "mul", "div", "fma", "larger", "smaller", "exp"):
        _, arguments, emit = OPERATIONS[f"{name}_f32x8"]
        made[f"{name}_f32x8"] = isa.make(f"{name}_wide", kind, (kind,) * len(arguments), emit)
    made["splat_f32x8"] = isa.make("splat_wide", kind, (types.float32,), lambda e, x: e.splat(x, WIDE))
    made["load_f32x8"] = isa.make("load_wide", kind, pair, lambda e, a, o: e.load(vector(F32, WIDE), e.b.add(a, o)))
    made["store_f32x8"] = isa.make("store_wide", types.void, (*pair, kind), lambda e, a, o, v: e.store(v, e.b.add(a, o)))
    return SimpleNamespace(**made)


def _functions(isa: Any, kind: Any) -> dict[str, Any]:
    """By variant, of vectors of this Numba type."""
    add, sub, mul, div, fma = isa.add_f32x8, isa.sub_f32x8, isa.mul_f32x8, isa.div_f32x8, isa.fma_f32x8
    splat, exp, larger, smaller = isa.splat_f32x8, isa.exp_f32x8, isa.larger_f32x8, isa.smaller_f32x8
    load_f32 = isa.load_f32
    c9, c8, c7, c6, c5, c4, c3, c2, c1, c0 = ERFC
    sigmoid, silu, gelu = (
        isa.make(emit.__name__, kind, (kind,), emit) for emit in (activations.sigmoid, activations.silu, activations.gelu)
    )

    @inline
    def tanh(x):
        """1 - 2 / (e^2x + 1): exact at both ends, where e^2x is 0 or infinite."""
        return sub(splat(1.0), div(splat(2.0), add(exp(add(x, x)), splat(1.0))))

    @inline
    def gelu_erf(x):
        """x/2 * erfc(-x / sqrt(2)) = max(x, 0) - |x|/2 * erfc(|x| / sqrt(2)), which cancels nowhere."""
        size = larger(x, sub(splat(0.0), x))
        z = mul(size, splat(sqrt(0.5)))
        t = div(splat(1.0), fma(z, splat(0.5), splat(1.0)))
        p = fma(t, splat(c9), splat(c8))
        p = fma(fma(fma(fma(p, t, splat(c7)), t, splat(c6)), t, splat(c5)), t, splat(c4))
        p = fma(fma(fma(fma(p, t, splat(c3)), t, splat(c2)), t, splat(c1)), t, splat(c0))
        erfc = mul(t, exp(sub(p, mul(z, z))))
        return sub(larger(x, splat(0.0)), mul(mul(size, splat(0.5)), erfc))

    @inline
    def gelu_quick(x):
        return mul(x, sigmoid(mul(x, splat(1.702))))

    @inline
    def relu(x):
        return larger(splat(0.0), x)  # NaN stays NaN

    @inline
    def hard_sigmoid(x):
        return smaller(splat(1.0), larger(splat(0.0), mul(add(x, splat(3.0)), splat(1 / 6))))

    @inline
    def relu_squared(x):
        return mul(larger(x, splat(0.0)), x)

    @inline
    def clamp(x, unused, limit):
        return smaller(limit, larger(sub(splat(0.0), limit), x))  # NaN stays NaN

    @inline
    def at_least(x, unused, limit):
        return larger(limit, x)

    @inline
    def at_most(x, unused, limit):
        return smaller(limit, x)

    @inline
    def xielu(x, unused, numbers):
        """Of `numbers` alpha_p, alpha_n, beta and eps: see edgellm.ops.dense."""
        alpha_p, alpha_n = splat(load_f32(numbers, 0)), splat(load_f32(numbers, 4))
        beta, low = splat(load_f32(numbers, 8)), smaller(x, splat(load_f32(numbers, 12)))
        return fma(alpha_n, sub(sub(exp(low), splat(1.0)), low), fma(alpha_p, relu_squared(x), mul(beta, x)))

    @inline
    def glu_clamped(gate, up, limit):
        """gelu_quick(min(gate, limit)) * (up within +-limit, plus 1)"""
        within = smaller(limit, larger(sub(splat(0.0), limit), up))
        return mul(gelu_quick(smaller(limit, gate)), add(within, splat(1.0)))

    unary = {
        "sigmoid": sigmoid,
        "hard_sigmoid": hard_sigmoid,
        "silu": silu,
        "gelu": gelu,
        "gelu_erf": gelu_erf,
        "gelu_quick": gelu_quick,
        "relu": relu,
        "relu_squared": relu_squared,
        "tanh": tanh,
        "softplus": softplus_of(isa),
    }
    table: dict[str, Any] = {
        "add": inline(lambda a, b, c: add(a, b)),
        "mul": inline(lambda a, b, c: mul(a, b)),
        "scale": inline(lambda a, b, c: mul(a, c)),
        "clamp": clamp,
        "at_least": at_least,
        "at_most": at_most,
        "xielu": xielu,
        "softcap": inline(lambda a, b, c: mul(c, tanh(div(a, c)))),
        "glu_clamped": glu_clamped,
    }
    for name, act in unary.items():
        table[name] = _plain(act)
        table["glu_" + name] = _gated(act, mul)
    return table


def _plain(act: Any) -> Any:
    return inline(lambda a, b, c: act(a))


def _gated(act: Any, mul: Any) -> Any:
    return inline(lambda a, b, c: mul(act(a), b))
