"""Times what a token costs beside its step: drawing it from the logits, and making text of it; and tokenizing a long prompt.

    .venv/bin/python scripts/bench_sampling.py FILE.gguf [--tokens 300]

Logits are random, as many as FILE has words; nothing of it but the tokenizer is read. Prints medians in microseconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from edgellm.formats.gguf import open_gguf
from edgellm.sampling import Sampler, SamplingOptions
from edgellm.tokenizer import Tokenizer, build_tokenizer
from edgellm.tokenizer.tokenizer import StreamDecoder

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = {
    "greedy": SamplingOptions(temperature=0),
    "temperature, top-k, top-p, min-p": SamplingOptions(),
    "the same with penalties": SamplingOptions(repeat_penalty=1.1, frequency_penalty=0.1, presence_penalty=0.1),
    "the same with DRY": SamplingOptions(repeat_penalty=1.1, dry_multiplier=0.8),
    "top-p, min-p without top-k": SamplingOptions(top_k=0),
    "temperature alone": SamplingOptions(top_k=0, top_p=1, min_p=0),
}
PROMPT = 100_000  # characters
PAST = 1000  # tokens before those that are drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokens", type=int, default=300)
    asked = parser.parse_args()
    with open_gguf(asked.file) as file:
        tokenizer = build_tokenizer(file.metadata, file=str(asked.file))
    source = np.random.default_rng(1)
    n_vocab = tokenizer.vocab_size
    logits = [source.normal(0, 3, n_vocab).astype(np.float32) for _ in range(8)]
    past = array("i", source.integers(0, n_vocab, PAST).tolist())
    print(f"{n_vocab:,} words, medians of {asked.tokens} tokens:")
    for name, options in OPTIONS.items():
        sampler = Sampler(options, n_vocab=n_vocab, context=4096)
        print(f"  {name}: {_median(asked.tokens, lambda at, draw=sampler.sample: draw(logits[at % 8], past)):.0f} us")
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("edgellm/**/*.py")))[:PROMPT]
    tokenizer.prepare()
    taken = _median(9, lambda _: tokenizer.encode(code))
    print(f"  {PROMPT:,} characters of code, {len(tokenizer.encode(code)):,} tokens, tokenized: {taken / 1000:.0f} ms")
    print(f"  text of a token: {_text(tokenizer, past, asked.tokens):.1f} us")


def _text(tokenizer: Tokenizer, ids: array[int], n: int) -> float:
    decoder = StreamDecoder(tokenizer)
    return _median(n, lambda at: decoder.push(ids[at % PAST]))


def _median(n: int, call: Callable[[int], object]) -> float:
    """Microseconds of a call."""
    taken = list[float]()
    for at in range(n):
        began = time.perf_counter()
        call(at)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


if __name__ == "__main__":
    main()
