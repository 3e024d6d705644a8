"""Makes GGUF files byte by byte, sound and malformed ones, with the error that each malformed one must end in."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, replace

import numpy as np

from edgellm.formats.errors import (
    BadAlignment,
    BadHParam,
    BadMagic,
    BadTensorInfo,
    BadType,
    BadVersion,
    Duplicate,
    FormatError,
    LimitExceeded,
    Truncated,
    Unsupported,
)

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
MAX64 = (1 << 64) - 1


def number(kind: int, value: float) -> bytes:
    """A scalar as the file has it."""
    return struct.pack("<" + _FORMATS[kind], value)


def string(text: str | bytes, length: int | None = None) -> bytes:
    """A string with its length prefix, or with a lie in its place."""
    raw = text.encode() if isinstance(text, str) else text
    return number(U64, len(raw) if length is None else length) + raw


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry whose value is `payload`."""
    return string(name) + number(U32, kind) + payload


def scalar(name: str, kind: int, value: float) -> bytes:
    """A metadata entry that holds a number or a bool."""
    return key(name, kind, number(kind, value))


def array(name: str, kind: int, items: list[bytes], count: int | None = None) -> bytes:
    """A metadata entry that holds an array, or one that lies about its length."""
    return key(name, ARRAY, number(U32, kind) + number(U64, len(items) if count is None else count) + b"".join(items))


@dataclass(frozen=True)
class Tensor:
    """An entry of the tensor list; None where the true value belongs."""

    name: str | bytes
    dims: tuple[int, ...] = (32, 2)  # GGUF's order: the row length first
    type: int = 0
    nbytes: int = 256
    n_dims: int | None = None
    offset: int | None = None
    name_length: int | None = None
    data: bytes | None = None

    def entry(self, offset: int) -> bytes:
        n_dims = len(self.dims) if self.n_dims is None else self.n_dims
        at = offset if self.offset is None else self.offset
        return b"".join(
            [
                string(self.name, self.name_length),
                number(U32, n_dims),
                *(number(U64, d) for d in self.dims),
                number(U32, self.type),
                number(U64, at),
            ]
        )


KEYS = [
    key("general.architecture", STRING, string("llama")),
    scalar("a.u8", U8, 200),
    scalar("a.i8", I8, -5),
    scalar("a.u16", U16, 60000),
    scalar("a.i16", I16, -300),
    scalar("a.u32", U32, 4_000_000_000),
    scalar("a.i32", I32, -70000),
    scalar("a.f32", F32, 1.5),
    scalar("a.bool", BOOL, True),
    scalar("a.u64", U64, MAX64),
    scalar("a.i64", I64, -1 << 63),
    scalar("a.f64", F64, 0.1),
    array("b.strings", STRING, [string("<s>"), string(""), string("wörd"), string(b"\xff\xfe"), string("x" * 300)]),
    array("b.floats", F32, [number(F32, 0.25), number(F32, -2.0)]),
    array("b.bools", BOOL, [number(BOOL, True), number(BOOL, False)]),
    array("b.i64", I64, [number(I64, -1)]),
    array("b.empty", STRING, []),
]
TENSORS = [Tensor("token_embd.weight"), Tensor("blk.0.attn_q.weight", (32, 3), 2, 54), Tensor("output_norm.weight", (7,), 1, 14)]


def padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def gguf(
    keys: list[bytes] = KEYS,
    tensors: list[Tensor] = TENSORS,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
    cut: int = 0,
) -> bytes:
    """A whole file. `alignment` lays the data out (the key that says so is one of `keys`); `cut` bytes are left off."""
    head = [
        magic,
        number(U32, version),
        number(U64, len(tensors) if n_tensors is None else n_tensors),
        number(U64, len(keys) if n_keys is None else n_keys),
        *keys,
    ]
    offset, body = 0, b""
    for tensor in tensors:
        head.append(tensor.entry(offset))
        n = min(tensor.nbytes, 1 << 20)
        data = tensor.data if tensor.data is not None else (np.arange(n) * 37 + len(head)).astype(np.uint8).tobytes()
        body += data.ljust(padded(n, alignment), b"\0")
        offset += padded(tensor.nbytes, alignment)
    header = b"".join(head)
    whole = header.ljust(padded(len(header), alignment), b"\0") + body if tensors else header
    return whole[: len(whole) - cut]


def header_bytes() -> int:
    """Where the header of `gguf()` ends and the padding before its data begins."""
    return len(b"".join([b"GGUF", bytes(20), *KEYS, *(tensor.entry(0) for tensor in TENSORS)]))


@dataclass(frozen=True)
class Case:
    """A file and what must become of it: the error's class, or None where it must open."""

    name: str
    data: bytes
    error: type[FormatError] | None


def _align(value: int) -> list[bytes]:
    return [*KEYS, scalar("general.alignment", U32, value)]


def _tensor(**changes: object) -> list[Tensor]:
    return [replace(TENSORS[0], **changes), *TENSORS[1:]]  # type: ignore[arg-type]  # names are Tensor's fields


def _header_cases() -> list[Case]:
    whole = gguf()
    return [
        Case("empty-file", b"", Truncated),
        Case("three-bytes", b"GGU", Truncated),
        Case("magic-only", b"GGUF", Truncated),
        Case("bad-magic", gguf(magic=b"FUGG"), BadMagic),
        Case("old-ggml", gguf(magic=b"lmgg"), BadMagic),
        Case("zip", b"PK\x03\x04" + bytes(60), BadMagic),
        Case("lfs-pointer", b"version https://git-lfs.github.com", BadMagic),
        Case("web-page", b"<!DOCTYPE html>", BadMagic),
        Case("zeros", bytes(4096), BadMagic),
        Case("version-0", gguf(version=0), BadVersion),
        Case("version-1", gguf(version=1), BadVersion),
        Case("version-4", gguf(version=4), BadVersion),
        Case("big-endian", gguf(version=3 << 24), BadVersion),
        Case("n-tensors-max", gguf(n_tensors=MAX64), LimitExceeded),
        Case("n-keys-max", gguf(n_keys=MAX64), LimitExceeded),
        Case("n-tensors-2^60", gguf(n_tensors=1 << 60), LimitExceeded),
        Case("n-keys-2^60", gguf(n_keys=1 << 60), LimitExceeded),
        Case("n-tensors-32769", gguf(n_tensors=32769), LimitExceeded),
        Case("n-keys-16385", gguf(n_keys=16385), LimitExceeded),
        Case("n-tensors-do-not-fit", gguf(n_tensors=32768), Truncated),
        Case("n-keys-do-not-fit", gguf(n_keys=16384), Truncated),
        Case("one-key-more", gguf([], [], n_keys=1), Truncated),
        Case("one-tensor-more", gguf([], [], n_tensors=1), Truncated),
        Case("ok-no-keys-no-tensors", gguf([], []), None),
        Case("ok-base", whole, None),
        Case("ok-version-2", gguf(version=2), None),
        Case("ok-no-tensors", gguf(tensors=[]), None),
        Case("ok-no-keys", gguf([]), None),
        Case("ok-bytes-after-the-end", whole + b"tail", None),
    ]


def _key_cases() -> list[Case]:
    def of(*keys: bytes) -> bytes:
        return gguf([*KEYS, *keys])

    return [
        Case("key-length-max", gguf([string(b"k", MAX64)]), LimitExceeded),
        Case("key-65536-bytes", of(scalar("k" * 65536, U8, 1)), LimitExceeded),
        Case("key-empty", of(scalar("", U8, 1)), BadHParam),
        Case("key-no-utf8", of(key(b"k\xff\xfe", U8, b"\1")), BadHParam),
        Case("key-runs-out", gguf([string(b"k", 9999) + bytes(20)], []), Truncated),
        Case("keys-too-long-together", of(*(scalar(f"{i:05}".ljust(65535), U8, 1) for i in range(129))), LimitExceeded),
        Case("value-type-13", of(key("k", 13, bytes(8))), BadType),
        Case("value-type-max", of(key("k", 2**32 - 1, bytes(8))), BadType),
        Case("duplicate-key", of(scalar("a.u8", U8, 1)), Duplicate),
        Case("bool-2", of(key("k", BOOL, b"\2")), BadType),
        Case("bool-array-255", of(array("k", BOOL, [b"\1\xff"], 2)), BadType),
        Case("string-length-max", of(key("k", STRING, string(b"", MAX64))), LimitExceeded),
        Case("string-2^30+1", of(key("k", STRING, string(b"", (1 << 30) + 1))), LimitExceeded),
        Case("string-runs-out", of(key("k", STRING, string(b"", 100_000))), Truncated),
        Case("array-of-arrays", of(array("k", ARRAY, [number(U32, U8) + number(U64, 1) + b"\1"])), BadType),
        Case("array-type-13", of(array("k", 13, [bytes(8)])), BadType),
        Case("array-length-max", of(array("k", U8, [], MAX64)), LimitExceeded),
        Case("array-2^30+1", of(array("k", U8, [], (1 << 30) + 1)), LimitExceeded),
        Case("bools-2^20+1", of(array("k", BOOL, [], (1 << 20) + 1)), LimitExceeded),
        Case("bools-run-out", of(array("k", BOOL, [], 1 << 20)), Truncated),
        Case("array-size-wraps", of(array("k", F64, [], 1 << 61)), LimitExceeded),
        Case("array-runs-out", of(array("k", U64, [], 1 << 20)), Truncated),
        Case("strings-length-max", of(array("k", STRING, [], MAX64)), LimitExceeded),
        Case("strings-run-out", of(array("k", STRING, [], 1 << 20)), Truncated),
        *(
            Case(f"strings-one-of-{n}", of(array("k", STRING, [string("a"), string("b", n), string("c")])), Truncated)
            for n in (1 << 40, (1 << 63) - 1, MAX64 - 7, MAX64)
        ),
        Case("strings-last-too-long", gguf([*KEYS, array("k", STRING, [string("a"), string("b", 2)])], []), Truncated),
        Case("alignment-13", gguf(_align(13)), BadAlignment),
        Case("alignment-0", gguf(_align(0)), BadAlignment),
        Case("alignment-i32", of(scalar("general.alignment", I32, 32)), BadAlignment),
        Case("alignment-u64", of(scalar("general.alignment", U64, 32)), BadAlignment),
        Case("alignment-string", of(key("general.alignment", STRING, string("32"))), BadAlignment),
        Case("ok-key-65535-bytes", of(scalar("k" * 65535, U8, 1)), None),
        Case("ok-key-one-byte", of(scalar("k", U8, 1)), None),
        Case("ok-value-no-utf8", of(key("k", STRING, string(b"\xff\xc0"))), None),
        Case("ok-empty-string", of(key("k", STRING, string(""))), None),
        *(Case(f"ok-alignment-{n}", gguf(_align(n), alignment=n), None) for n in (1, 2, 8, 16, 64, 4096)),
    ]


def _tensor_cases() -> list[Case]:
    types = {
        "removed-q4_2": 4,
        "removed-q4_3": 5,
        "removed-q4_0_4_4": 31,
        "removed-q4_0_8_8": 33,
        "removed-iq4_nl_4_8": 37,
        "bitnet-i2_s": 36,
        "ik-iq1_bn": 134,
        "ik-iq4_k": 139,
        "ik-iq5_ks_r4": 352,
        "ik-q8_k_r8": 399,
    }
    big, half = (1 << 31) - 1, (1 << 63) - 64
    return [
        *(Case(f"type-{name}", gguf(tensors=_tensor(type=id)), Unsupported) for name, id in types.items()),
        Case("type-43", gguf(tensors=_tensor(type=43)), BadType),
        Case("type-96", gguf(tensors=_tensor(type=96)), BadType),
        Case("type-max", gguf(tensors=_tensor(type=2**32 - 1)), BadType),
        Case("name-87-bytes", gguf(tensors=_tensor(name="n" * 87)), BadTensorInfo),
        Case("name-64-bytes", gguf(tensors=_tensor(name="n" * 64)), BadTensorInfo),
        Case("name-length-max", gguf(tensors=_tensor(name_length=MAX64)), BadTensorInfo),
        Case("name-empty", gguf(tensors=_tensor(name="")), BadTensorInfo),
        Case("name-no-utf8", gguf(tensors=_tensor(name=b"\xff\xfe")), BadTensorInfo),
        Case("duplicate-tensor", gguf(tensors=_tensor(name="output_norm.weight")), Duplicate),
        Case("5-dims", gguf(tensors=_tensor(dims=(32, 2, 1, 1, 1))), BadTensorInfo),
        Case("n-dims-max", gguf(tensors=_tensor(n_dims=2**32 - 1)), BadTensorInfo),
        Case("dim-minus-1", gguf(tensors=_tensor(dims=(MAX64, 2))), BadTensorInfo),
        Case("dims-squared", gguf(tensors=_tensor(dims=(4 * big, 4 * big))), BadTensorInfo),
        Case("dims-cubed", gguf(tensors=_tensor(dims=(4 * big, 4 * big, 4 * big))), BadTensorInfo),
        Case("dims-zero-times-huge", gguf(tensors=_tensor(dims=(1 << 62, 1 << 62, 0))), BadTensorInfo),
        Case("bytes-over-2^64", gguf(tensors=_tensor(dims=(1 << 61, 2), type=27)), BadTensorInfo),
        Case("bytes-padding-wraps", gguf(tensors=_tensor(dims=(4, 2**30 - 1, 2**30 + 1))), BadTensorInfo),
        Case("sum-wraps", gguf(tensors=[Tensor(f"t{i}", (half,), 24, half) for i in range(2)]), Truncated),
        Case("row-no-whole-block", gguf(tensors=_tensor(dims=(33, 2), type=2)), BadTensorInfo),
        Case("row-no-whole-k-block", gguf(tensors=_tensor(dims=(32, 8), type=12)), BadTensorInfo),
        Case("scalar-of-blocks", gguf(tensors=_tensor(dims=(), type=8)), BadTensorInfo),
        Case("offset-max", gguf(tensors=[*TENSORS[:2], replace(TENSORS[2], offset=MAX64)]), BadAlignment),
        Case("offset-max-aligned", gguf(tensors=[*TENSORS[:2], replace(TENSORS[2], offset=MAX64 - 31)]), BadTensorInfo),
        Case("offset-gap", gguf(tensors=[TENSORS[0], replace(TENSORS[1], offset=288), TENSORS[2]]), BadTensorInfo),
        Case("offset-overlap", gguf(tensors=[TENSORS[0], replace(TENSORS[1], offset=224), TENSORS[2]]), BadTensorInfo),
        Case("offset-first-not-0", gguf(tensors=_tensor(offset=32)), BadTensorInfo),
        Case("offset-misaligned", gguf(tensors=[TENSORS[0], replace(TENSORS[1], offset=257)]), BadAlignment),
        Case("laid-out-for-1-says-32", gguf(_align(32), alignment=1), BadAlignment),
        Case("laid-out-for-32-says-64", gguf(_align(64), TENSORS[::-1]), BadAlignment),
        Case("data-one-byte-short", gguf(cut=19), Truncated),
        Case("data-missing", gguf()[: header_bytes()], Truncated),
        Case("alignment-2^31", gguf(_align(1 << 31), [TENSORS[0]]), Truncated),
        Case("ok-last-padding-missing", gguf(cut=18), None),
        Case("ok-name-63-bytes", gguf(tensors=_tensor(name="n" * 63)), None),
        Case("ok-zero-dim", gguf(tensors=_tensor(dims=(32, 0), nbytes=0)), None),
        Case("ok-zero-row", gguf(tensors=_tensor(dims=(0, 4), nbytes=0)), None),
        Case("ok-zero-dim-last", gguf(tensors=[*TENSORS, Tensor("z", (0,), 2, 0)]), None),
        Case("ok-no-dims", gguf(tensors=_tensor(dims=(), nbytes=4)), None),
        Case("ok-4-dims", gguf(tensors=_tensor(dims=(4, 2, 2, 4))), None),
        Case("ok-known-type-without-codec", gguf(tensors=_tensor(dims=(256, 1), type=16, nbytes=66)), None),
    ]


CASES = [*_header_cases(), *_key_cases(), *_tensor_cases()]
"""Every class of test-gguf.cpp and of our own rules, as small files."""

_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 1 << 31, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, MAX64)


def mutate(data: bytes, source: random.Random) -> bytes:
    """`data` with one to three random injuries: flipped bits, odd integers, cuts, splices, repeats, insertions."""
    for _ in range(source.randint(1, 3)):
        at, width = source.randrange(max(len(data), 1)), source.choice((1, 2, 4, 8))
        piece = data[at : at + source.randint(1, 40)]
        other = source.randrange(max(len(data), 1))
        odd = (source.choice(_INTERESTING) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        flipped = bytes([data[at] ^ 1 << source.randrange(8)]) if data else b""
        data = source.choice(
            (
                data[:at] + flipped + data[at + 1 :],
                data[:at] + odd + data[at + width :],
                data[:at],
                data[:other] + piece + data[other + len(piece) :],
                data[:other] + piece + data[other:],
                data[:at] + source.randbytes(width) + data[at:],
                data[:at] + data[at + len(piece) :],
            )
        )
    return data
