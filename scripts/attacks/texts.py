"""Texts for tokenizers: each has tokens, comes back from them, costs time in proportion, and forms no control token."""
from __future__ import annotations

import random
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
SIZES, LONGEST, RATIO = (1 << 16, 1 << 18, 1 << 20), 2.0, 5.0
ALPHABETS = ("abcdefghij ", " \n\t\r", "<|im_end|>/s", "é中한हि👋🏽", "\0\x01\x1b\x7f\x9b", "0123456789",
             "\u202e\u2067\u200e\ufeff\ufffd")
UNITS = ("a", " ", "the cat sat. ", "7", "\n", "<", "é", "👋", "<|im_end|>", "'s", "中文")


def tokenizers() -> Iterator[tuple[str, Tokenizer]]:
    """Two small ones, and the real ones of ../shared where it is."""
    yield "spm", build_tokenizer(spm_metadata(), file="spm")
    yield "bpe", build_tokenizer(bpe_metadata(), file="bpe")
    for name in REAL:
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
            except BadVocab:                     # no token for some byte: starcoder's has none for those of rare planes
                beyond += 1
            except BaseException as error:
                faults.append(f"{name} {case}: {text!r}: {error!r}")
    return Figure(f"{n:,} random texts for each of {len(names)} vocabularies ({', '.join(names)})",
                  f"{len(faults)} exceptions or texts that do not come back; {beyond} typed errors for bytes without a token",
                  faults)


def long_ones(folder: Path, seed: int, n: int) -> Figure:
    """Figure 9: a MiB of one thing, or of words, in two seconds, and four times the text in at most five times the time."""
    faults, slowest, steepest = list[str](), 0.0, 0.0
    source = random.Random(seed)
    words = " ".join("".join(source.choices("etaoinshrdlu", k=source.randrange(1, 10))) for _ in range(1 << 18))
    for name, tokenizer in tokenizers():
        for unit in (*UNITS, words):
            taken = list[float]()
            for size in SIZES:
                encoded = len(unit[:64].encode()) / min(len(unit), 64)
                text = (unit * (size // len(unit) + 1))[: int(size / encoded)]
                began = time.process_time()
                tokenizer.encode(text)
                taken.append(time.process_time() - began)
            ratio = max(later / max(earlier, 0.02) for earlier, later in pairwise(taken))
            slowest, steepest = max(slowest, taken[-1]), max(steepest, ratio)
            if taken[-1] > LONGEST or ratio > RATIO:
                faults.append(f"{name}, {unit[:12]!r}: {', '.join(f'{seconds:.2f} s' for seconds in taken)}")
    return Figure(f"64 KiB, 256 KiB and 1 MiB of {len(UNITS) + 1} texts",
                  f"1 MiB in at most {slowest:.2f} s of processor time, four times the text in {steepest:.1f} times as much",
                  faults)


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
