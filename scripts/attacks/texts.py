"""Texts for tokenizers: each has tokens, comes back from them, costs time in proportion, and forms no control token."""

from __future__ import annotations

import math
import random
import string
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from vocabulary_cases import bpe_metadata, spm_metadata

from attacks import Figure
from edgellm.errors import BadVocab
from edgellm.formats.gguf import open_gguf
from edgellm.tokenizer import Tokenizer, build_tokenizer

VOCABULARIES = Path(__file__).resolve().parents[3] / "shared" / "vocabs"
REAL = ("llama-spm", "llama-bpe", "qwen2", "phi-3", "gpt-2", "deepseek-llm", "starcoder")
WORD_PIECES = "bert-bge"
SIZES, LONGEST, RATIO, ATTEMPTS = (1 << 16, 1 << 18, 1 << 20), 2.0, 5.0, 5
ALPHABETS = (
    "abcdefghij ",
    " \n\t\r",
    "<|im_end|>/s",
    "é中한हि👋🏽",
    "\0\x01\x1b\x7f\x9b",
    "0123456789",
    "\u202e\u2067\u200e\ufeff\ufffd",
)
UNITS = (
    "a",
    " ",
    "the cat sat. ",
    "7",
    "\n",
    "<",
    "é",
    "👋",
    "<|im_end|>",
    "'s",
    "中文",
    "ab",
    "\t",
    "\r\n",
    " \n",
    "1 ",
    "a1",
    "A",
    "한",
    "का",
    "\u0301",
    "\0",
    "\ufffd",
    "</s>",
    "<0x0A>",
    "I'll ",
    '"a": 1, ',
    "{\n  ",
    "👩\u200d👧",
    "aé中",
)
MIXES = {
    "lower": "etaoinshrdlu",
    "letters": string.ascii_letters,
    "digits": string.digits,
    "punctuation": string.punctuation,
    "ascii": "".join(map(chr, range(128))),
    "latin-1": "".join(map(chr, range(256))),
    "spaces": " \n\t\r",
    "base64": string.ascii_letters + string.digits + "+/",
    "hex": string.hexdigits[:16],
    "cjk": "".join(map(chr, range(0x4E00, 0x9FA6))),
    "hangul": "".join(map(chr, range(0xAC00, 0xD7A4))),
    "emoji": "".join(map(chr, range(0x1F300, 0x1F700))) + "\u200d\ufe0f",
    "bmp": "".join(map(chr, range(0x3000))),
}


def tokenizers(*more: str) -> Iterator[tuple[str, Tokenizer]]:
    """Two small ones, and the real ones of ../shared where it is; those of `more` do not give texts back as they were."""
    yield "spm", build_tokenizer(spm_metadata(), file="spm")
    yield "bpe", build_tokenizer(bpe_metadata(), file="bpe")
    for name in (*REAL, *more):
        path = VOCABULARIES / f"ggml-vocab-{name}.gguf"
        if path.is_file():
            with open_gguf(path) as file:
                yield name, build_tokenizer(file.metadata, file=str(path))


def some_text(source: random.Random) -> str:
    """Up to 200 characters of any kind: alphabets mixed, bytes as text, lone surrogates."""
    kind, length = source.random(), source.randrange(1, 200)
    if kind < 0.5:
        return "".join(source.choice(source.choice(ALPHABETS)) for _ in range(length))
    if kind < 0.7:
        return source.randbytes(length).decode("latin-1")
    return "".join(chr(source.randrange(0x11_0000 if kind > 0.85 else 0x3000)) for _ in range(length))


def round_trips(folder: Path, seed: int, n: int) -> Figure:
    """Figure 9: no text is an error, and what is valid UTF-8 comes back (but U+2581, which SPM writes for a space)."""
    faults, names, beyond = list[str](), list[str](), 0
    for name, tokenizer in tokenizers():
        source = random.Random(f"{seed} {name}")
        names.append(name)
        for case in range(n):
            text = some_text(source)
            try:
                ids = tokenizer.encode(text, add_special=False)
                back = tokenizer.decode(ids)
                valid = not any("\ud800" <= char <= "\udfff" for char in text) and "\u2581" not in text
                if valid and back != text:
                    faults.append(f"{name} {case}: {text!r} comes back as {back!r}")
                if any(map(tokenizer.is_control, ids)):
                    faults.append(f"{name} {case}: {text!r} has a control token")
            except BadVocab:  # no token for some byte: starcoder's has none for those of rare planes
                beyond += 1
            except BaseException as error:
                faults.append(f"{name} {case}: {text!r}: {error!r}")
    return Figure(
        f"{n:,} random texts for each of {len(names)} vocabularies ({', '.join(names)})",
        f"{len(faults)} exceptions or texts that do not come back; {beyond} typed errors for bytes without a token",
        faults,
    )


def long_texts(seed: int) -> Iterator[tuple[str, str]]:
    """Name and text of 1 MiB: one thing again and again, random characters of one kind or of all, words, code."""
    for unit in UNITS:
        yield repr(unit), _first_bytes(unit * (SIZES[-1] // len(unit.encode()) + 1), SIZES[-1])
    source = random.Random(seed)
    for name, letters in MIXES.items():
        yield name, _first_bytes("".join(source.choices(letters, k=SIZES[-1])), SIZES[-1])
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[2].glob("edgellm/**/*.py")))
    yield "code", _first_bytes(code * (SIZES[-1] // len(code) + 1), SIZES[-1])
    words = " ".join("".join(source.choices("etaoinshrdlu", k=source.randrange(1, 10))) for _ in range(SIZES[-1] // 4))
    yield "words", _first_bytes(words, SIZES[-1])
    anything = (chr(source.randrange(0x11_0000)) for _ in range(SIZES[-1] // 3))
    yield "unicode", _first_bytes("".join(anything), SIZES[-1])


def _first_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def long_ones(folder: Path, seed: int, n: int) -> Figure:
    """Figure 9: a MiB of any text in two seconds, and four times the text in at most five times the time, in one of
    a few runs.
    """
    faults, slowest, steepest = list[str](), 0.0, 0.0
    texts = dict(long_texts(seed))
    for name, tokenizer in tokenizers(WORD_PIECES):
        tokenizer.prepare()
        for kind, text in texts.items():
            taken, ratio = [math.inf], math.inf
            for _ in range(ATTEMPTS):  # other programs change the processor's clock within a run
                if ratio > RATIO:
                    taken = [_seconds(tokenizer, _first_bytes(text, size)) for size in SIZES]
                    ratio = min(ratio, max(later / max(earlier, 0.02) for earlier, later in pairwise(taken)))
            slowest, steepest = max(slowest, taken[-1]), max(steepest, ratio)
            if taken[-1] > LONGEST or ratio > RATIO:
                faults.append(f"{name}, {kind}: {', '.join(f'{seconds:.2f} s' for seconds in taken)}")
    return Figure(
        f"64 KiB, 256 KiB and 1 MiB of {len(texts)} texts",
        f"1 MiB in at most {slowest:.2f} s of processor time, four times the text in {steepest:.1f} times as much",
        faults,
    )


def _seconds(tokenizer: Tokenizer, text: str) -> float:
    """Processor time of its ids."""
    began = time.process_time()
    with suppress(BadVocab):  # no token for some byte, as in starcoder's
        tokenizer.encode(text)
    return time.process_time() - began


def control_tokens(folder: Path, seed: int, n: int) -> Figure:
    """Figure 10: the names of control tokens in a message stay text, whatever stands around them."""
    faults, tried = list[str](), 0
    for name, tokenizer in tokenizers():
        source = random.Random(f"{seed} {name}")
        control = [tokenizer.token_text(token) for token in tokenizer.vocabulary.control]
        for said in control if len(control) <= 300 else source.sample(control, 300):
            for _ in range(max(1, n // 50)):
                tried += 1
                text = some_text(source)[:20] + said + some_text(source)[:20]
                with suppress(BadVocab):
                    if any(map(tokenizer.is_control, tokenizer.encode(text, add_special=False))):
                        faults.append(f"{name}: {text!r}")
    return Figure(f"{tried:,} texts around the names of control tokens", f"{len(faults)} became control tokens", faults)
