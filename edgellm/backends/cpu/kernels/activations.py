"""Activations as IR, of vectors of any length, for kernels that apply them to results of their own."""

from __future__ import annotations

from edgellm.backends.cpu.simd.base import Value
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.ops.dense import GATES_OF_PRODUCTS

assert GATES_OF_PRODUCTS == ("silu", "gelu")  # the numbers 1 and 2 of `gate`


def sigmoid(e: Generic, x: Value) -> Value:
    one = e.constant(x.type, 1.0)
    return e.b.fdiv(one, e.b.fadd(one, e.exp(e.b.fsub(0.0, x))))


def silu(e: Generic, x: Value) -> Value:
    return e.b.fmul(x, sigmoid(e, x))


def gelu(e: Generic, x: Value) -> Value:
    """x/2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3)"""
    return e.b.fmul(x, sigmoid(e, _twice_u(e, x)))


def _twice_u(e: Generic, x: Value) -> Value:
    cubic = e.fma(e.b.fmul(e.b.fmul(x, x), x), e.constant(x.type, 0.044715), x)
    return e.b.fmul(cubic, 1.5957691216057308)


def gate(e: Generic, number: Value, x: Value) -> Value:
    """The activation with this number: see `act` in ops/dense.py."""
    return e.b.fmul(x, sigmoid(e, e.b.select(e.b.icmp_signed("==", number, 1), x, _twice_u(e, x))))
