"""The source of a product for Metal, from the definition of a type's octets: a SIMD group adds up one row by one vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgellm.backends.mlx.octets import DEFINITIONS, Number, octets_of, points
from edgellm.formats.ggml_types import TYPES_BY_NAME

LANES = 32
INPUTS = ["w", "x", "first", "coordinates"]  # bytes of all rows; vectors (T, columns); the first row of each; the grid
HEADER = """
inline uint u8(const device uchar* b, uint at) { return b[at]; }
inline uint u16(const device uchar* b, uint at) { return b[at] | uint(b[at + 1]) << 8; }
inline uint u32(const device uchar* b, uint at) { return u16(b, at) | u16(b, at + 2) << 16; }
inline float real_of_half(uint bits) { return float(as_type<half>(ushort(bits))); }
inline float real(uint number) { return float(number); }
inline uint even(uint seven) { return seven | (popcount(seven) & 1) << 7; }
inline float signed_by(float value, uint signs, uint place) { return (signs >> place & 1) != 0 ? -value : value; }
"""
AROUND = """
const uint row = thread_position_in_grid.y, t = thread_position_in_grid.z, lane = thread_position_in_grid.x;
const device uchar* bytes = w + (ulong(first[t]) + row) * ROW_BYTES;
const device float* vector = x + ulong(t) * COLUMNS;
float sum = 0;
for (uint n = lane; n < COLUMNS / 8; n += {lanes}) {{
    const device uchar* b = bytes + n / {octets} * {block_bytes};
    const device float* v = vector + 8 * n;
    const uint o = n % {octets};
{octet}
}}
sum = simd_sum(sum);
if (lane == 0) y[t * ROWS + row] = sum;
"""


Operator = Callable[["MetalText", Number], "MetalText"]


def _operators(sign: str) -> tuple[Operator, Operator]:
    """The methods of an operator for an expression on its left, and on its right."""

    def write(left: Number, right: Number) -> MetalText:
        return MetalText(f"({_text(left)} {sign} {_text(right)})")

    return write, lambda right, left: write(left, right)


@dataclass(frozen=True, slots=True)
class MetalText:
    """An expression; operators write a longer one."""

    text: str

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __rshift__, _ = _operators(">>")
    __lshift__, _ = _operators("<<")
    __and__, _ = _operators("&")
    __or__, _ = _operators("|")


def _text(number: Number) -> str:
    return number.text if isinstance(number, MetalText) else f"{number}f" if isinstance(number, float) else str(number)


class Writer:
    """A reader that writes what it reads as statements."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def named(self, kind: str, value: Number) -> MetalText:
        self.lines.append(f"const {kind} n{len(self.lines)} = {_text(value)};")
        return MetalText(f"n{len(self.lines) - 1}")

    def u8(self, at: Number) -> MetalText:
        return self.named("uint", MetalText(f"u8(b, {_text(at)})"))

    def u16(self, at: Number) -> MetalText:
        return self.named("uint", MetalText(f"u16(b, {_text(at)})"))

    def u32(self, at: Number) -> MetalText:
        return self.named("uint", MetalText(f"u32(b, {_text(at)})"))

    def half(self, bits: Number) -> MetalText:
        return MetalText(f"real_of_half({_text(bits)})")

    def real(self, number: Number) -> MetalText:
        return MetalText(f"real({_text(number)})")

    def even(self, seven: Number) -> MetalText:
        return self.named("uint", MetalText(f"even({_text(seven)})"))


def octet_lines(kind: str) -> list[str]:
    """Statements that add octet `o` of block `b`, times the eight numbers at `v`, to `sum`."""
    writer, width = Writer(), points(kind).shape[1]
    octet = DEFINITIONS[kind][0](writer, MetalText("o"))
    step = writer.named("float", octet.step)
    shift = None if octet.shift is None else writer.named("float", octet.shift)
    firsts = [writer.named("uint", width * point) for point in octet.points]
    terms = []
    for place in range(8):
        term = f"coordinates[{firsts[place // width].text} + {place % width}]"
        term = term if octet.signs is None else f"signed_by({term}, {_text(octet.signs)}, {place})"
        terms.append(f"{term} * v[{place}]" if shift is None else f"({term} + {shift.text}) * v[{place}]")
    return [*writer.lines, f"sum += {step.text} * ({' + '.join(terms)});"]


def source(kind: str) -> str:
    """The body of a kernel with inputs INPUTS, output `y` (T, ROWS), and numbers ROWS, COLUMNS and ROW_BYTES."""
    octet = "\n".join(f"    {line}" for line in octet_lines(kind))
    return AROUND.format(lanes=LANES, octets=octets_of(kind), block_bytes=TYPES_BY_NAME[kind].block_bytes, octet=octet)
