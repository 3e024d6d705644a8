"""Vectors as Numba values, and Numba functions made of IR-emitting ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import PrimitiveModel, register_default
from numba.extending import intrinsic

# Any below: neither numba nor llvmlite has static types; an IR value is `ir.Value`, a Numba type `types.Type`.
Value = Any  # ir.Value
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
ELEMENTS: dict[str, Any] = {"i8": I8, "i16": I16, "i32": I32, "f32": F32}


class Vec(types.Type):  # type: ignore[misc]  # numba.types.Type is untyped
    """A vector of `lanes` elements; unsigned quants share the type of signed ones, operations say how they read them."""

    def __init__(self, element: str, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(f"Vec({element}x{lanes})")


@register_default(Vec)
class _VecModel(PrimitiveModel):  # type: ignore[misc]  # untyped base
    def __init__(self, manager: Any, kind: Vec) -> None:
        super().__init__(manager, kind, vector(ELEMENTS[kind.element], kind.lanes))


F32X8, I32X8, I8X32 = Vec("f32", 8), Vec("i32", 8), Vec("i8", 32)


def vector(element: Any, lanes: int) -> Any:
    return ir.VectorType(element, lanes)


def constant(kind: Any, value: float | Sequence[float]) -> Any:
    """A constant; one number fills all lanes of a vector type."""
    if isinstance(kind, ir.VectorType) and not isinstance(value, Sequence):
        value = [value] * kind.count
    return ir.Constant(kind, value)


class SimdBuilder(ir.IRBuilder):  # type: ignore[misc]  # untyped base
    """Writes where another builder does. An operand may be a number, or one for each lane: a constant of the other one's type."""

    def __init__(self, builder: Any) -> None:
        self.__dict__ = builder.__dict__


def _with_numbers(name: str) -> Callable[..., Any]:
    """The instruction `name`, whose last two operands are of one type."""
    plain = getattr(ir.IRBuilder, name)

    def instruction(self: SimdBuilder, *arguments: Any, **options: Any) -> Any:
        *first, a, b = arguments
        if not isinstance(b, ir.Value):
            b = constant(a.type, b)
        elif not isinstance(a, ir.Value):
            a = constant(b.type, a)
        return plain(self, *first, a, b, **options)

    return instruction


INTEGER = "add sub mul sdiv udiv srem urem and_ or_ xor shl lshr ashr icmp_signed icmp_unsigned select"
for _name in f"{INTEGER} fadd fsub fmul fdiv fcmp_ordered fcmp_unordered".split():
    setattr(SimdBuilder, _name, _with_numbers(_name))


def make_intrinsic(name: str, result: Any, arguments: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    """A Numba function `name(arguments) -> result` whose body is what `emit(builder, *values)` writes.

    No result: types.void. The values of a tuple result are given by `emit` as a list.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = emit(builder, *values)
        if result is types.void:
            return context.get_dummy_value()
        if isinstance(result, types.BaseTuple):
            return context.make_tuple(builder, signature.return_type, value)
        return value

    def typing(context: Any, *_: Any) -> Any:
        return result(*arguments), codegen

    typing.__name__ = name  # Numba counts the arguments by the signature
    names = ["context", *(f"a{i}" for i in range(len(arguments)))]
    parameters = [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in names]
    typing.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # mypy knows no such attribute
    return intrinsic(typing)
