"""Element by element: add, mul, scale, the activations, and gated pairs act(gate) * up."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any  # what a Numba function is to the type checker

from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.kernels._partition import first_item
from edgellm.backends.cpu.simd import Isa


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load_i64, load_f32, store_f32 = isa.load_i64, isa.load_f32, isa.store_f32
    load, store, splat = isa.load_f32x8, isa.store_f32x8, isa.splat_f32x8
    extract = isa.first_f32x8
    function = _functions(isa)[variant]

    def elementwise(op, ith, nth):
        step, a, a_stride, b, b_stride = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32), load_i64(op, 40)
        out, out_stride, n, value = load_i64(op, 48), load_i64(op, 56), load_i64(op, 64), load_f32(op, 72)
        rows = load_i64(step, load_i64(op, 80) * 8)
        constant = splat(value)
        at, last = first_item(rows, n, ith, nth), first_item(rows, n, ith + 1, nth)
        while at < last:
            row, j = at // n, at % n
            end = min(n, j + last - at)
            at += end - j
            p, q, t = a + row * a_stride, b + row * b_stride, out + row * out_stride
            while j + 8 <= end:
                store(t, j * 4, function(load(p, j * 4), load(q, j * 4), constant))
                j += 8
            while j < end:                       # by vectors too, so that a value never depends on its place
                store_f32(t, j * 4, extract(function(splat(load_f32(p, j * 4)), splat(load_f32(q, j * 4)), constant)))
                j += 1

    return elementwise


def _functions(isa: Isa) -> dict[str, Any]:
    add, sub, mul, div, fma = isa.add_f32x8, isa.sub_f32x8, isa.mul_f32x8, isa.div_f32x8, isa.fma_f32x8
    splat, exp = isa.splat_f32x8, isa.exp_f32x8

    @inline
    def sigmoid(x):
        return div(splat(1.0), add(splat(1.0), exp(sub(splat(0.0), x))))

    @inline
    def tanh(x):
        """1 - 2 / (e^2x + 1): exact at both ends, where e^2x is 0 or infinite."""
        return sub(splat(1.0), div(splat(2.0), add(exp(add(x, x)), splat(1.0))))

    @inline
    def silu(x):
        return mul(x, sigmoid(x))

    @inline
    def gelu(x):
        """x/2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3)"""
        cubic = fma(mul(mul(x, x), x), splat(0.044715), x)
        return mul(x, sigmoid(mul(cubic, splat(1.5957691216057308))))

    unary = {"silu": silu, "gelu": gelu}
    table: dict[str, Any] = {
        "add": inline(lambda a, b, c: add(a, b)),
        "mul": inline(lambda a, b, c: mul(a, b)),
        "scale": inline(lambda a, b, c: mul(a, c)),
        "softcap": inline(lambda a, b, c: mul(c, tanh(div(a, c)))),
    }
    for name, act in unary.items():
        table[name] = _plain(act)
        table["glu_" + name] = _gated(act, mul)
    return table


def _plain(act: Any) -> Any:
    return inline(lambda a, b, c: act(a))


def _gated(act: Any, mul: Any) -> Any:
    return inline(lambda a, b, c: mul(act(a), b))

