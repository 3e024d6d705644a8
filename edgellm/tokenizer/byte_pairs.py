"""Byte-level BPE: GPT-2's letters for bytes, and merges of vocabularies that list bytes by rank, as tiktoken does."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from edgellm.errors import BadVocab


def byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_LETTER = byte_letters()
LETTER = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def letters(piece: bytes) -> str:
    """Bytes as GPT-2 writes them."""
    return "".join(map(LETTER.__getitem__, piece))


def merges_of(pieces: Sequence[bytes]) -> list[str]:
    """Every pair of tokens that is a token, in the order of these: what merging by the rank of the whole does."""
    rank = {piece: i for i, piece in enumerate(pieces)}
    found = []
    for piece in pieces:
        pairs = [(rank[piece[:at]], rank[piece[at:]]) for at in range(1, len(piece)) if piece[:at] in rank and piece[at:] in rank]
        found += [f"{letters(pieces[left])} {letters(pieces[right])}" for left, right in sorted(pairs)]
    return found


def bytes_of(text: str | bytes, path: str) -> bytes:
    """The bytes of a token in base64. Raises BadVocab."""
    try:
        piece = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadVocab(f"{text[:40]!r} is not base64; download the folder again", file=path, field="token_bytes") from error
    if not piece:
        raise BadVocab("has a token without bytes; download the folder again", file=path, field="token_bytes")
    return piece
