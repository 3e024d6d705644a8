"""The table of character replacements that a unigram vocabulary brings along, checked before sentencepiece walks through it."""

from __future__ import annotations

import numpy as np

from edgellm.tokenizer.vocabulary import PREFIX, VocabularyReader

KEY = "precompiled_charsmap"
PAGE = 256  # children of a node lie in one page of so many units


def checked_charsmap(reader: VocabularyReader) -> bytes:
    """The bytes under `tokenizer.ggml.precompiled_charsmap`; empty where there is none.

    They are the size of a double array, its 32-bit units, and texts that end with a zero byte. A unit has the place of its
    children (bits 10 to 30, times 256 with bit 9), or with bit 31 set the place of a text. Raises BadVocab where a unit points
    outside: sentencepiece would read there.
    """
    value = reader.metadata.get(PREFIX + KEY)
    if value is None:
        return b""
    if getattr(value, "dtype", None) not in (np.dtype(np.int8), np.dtype(np.uint8)):
        raise reader.fault(KEY, "is not an array of bytes; convert the model again")
    if len(value) == 0:
        return b""
    data = np.ascontiguousarray(value).tobytes()
    size = int.from_bytes(data[:4], "little")
    units = np.frombuffer(data[4 : 4 + size // 4 * 4], "<u4").astype(np.int64)
    texts = data[4 + size :]
    if size % 4 or 4 * len(units) != size or not size or not texts.endswith(b"\0") or not _inside(units, len(texts)):
        raise reader.fault(KEY, "is damaged: it points outside of itself; get the file again or convert the model again")
    return data


def _inside(units: np.ndarray[tuple[int], np.dtype[np.int64]], n_texts: int) -> bool:
    leaf = units >> 31 == 1
    children = np.arange(len(units)) ^ (units >> 10 << (units >> 6 & 8))
    last = children[~leaf] | PAGE - 1
    return bool((last < len(units)).all()) and bool((units[leaf] & (1 << 31) - 1 < n_texts).all())
