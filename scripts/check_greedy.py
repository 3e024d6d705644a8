"""Compares the predictions for quantised files with llama.cpp's, and both with float32 arithmetic on the same weights.

    scripts/check_greedy.py MODEL.gguf... --peer PYTHON [--types Q4_0,Q4_K_M] [--details]

Each MODEL (F16 or F32) is quantised to each type. PYTHON has llama-cpp-python. Both programs write greedily after the same prompts,
with keys and values in f32. Where the texts part, --details says by how much float32's best token leads, how far both are from its
logits, and whose token it takes. Then both read the same --positions tokens: the share whose likeliest token is float32's, and the
mean KL divergence from float32. Ends with 1 where ours is more than 1.1 times llama.cpp's for a type, over all models.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # arrays of logits

import numpy as np
from children import ROOT, json_of

import edgellm
from edgellm.arch import load_graph
from edgellm.engine.conversation import Conversation
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.tools.kl import Divergences
from edgellm.tools.perplexity import log_softmax
from edgellm.tools.quantize import QuantizeOptions, quantize
from edgellm.weights import WeightStore

TYPES = (
    "F16",
    "BF16",
    "Q8_0",
    "Q6_K",
    "Q5_K_M",
    "Q5_1",
    "Q5_0",
    "Q4_K_M",
    "Q4_1",
    "Q4_0",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
    "Q3_K_M",
    "Q2_K",
    "TQ2_0",
    "TQ1_0",
)
PROMPT = 24  # tokens
LIMIT = 1.1  # of llama.cpp's divergence
Ids = list[int]


@dataclass(slots=True)
class Found:
    """Results of one type, over all models."""

    prompts: int = 0
    parted: int = 0
    ours_right: int = 0  # where texts part: whose token has float32's largest logit
    theirs_right: int = 0
    margins: list[float] = field(default_factory=list)
    errors: list[tuple[float, float]] = field(default_factory=list)  # ours, llama.cpp's, at those tokens
    themselves: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # prompts that part, by configuration
    same: list[tuple[float, float]] = field(default_factory=list)  # share of float32's tokens by model: ours, llama.cpp's
    divergence: list[tuple[float, float]] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peer", required=True, help="a Python that has llama-cpp-python")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=60, help="written after each prompt")
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--details", action="store_true", help="a line for each text that parts")
    options = parser.parse_args()
    found = {kind: Found() for kind in options.types.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            for kind, into in found.items():
                path = Path(folder) / f"{kind}.gguf"
                quantize(model, path, QuantizeOptions(type=kind, force=True))
                compare(path, f"{model.stem} as {kind}", into, options)
    print(table(found))
    bad = [kind for kind, each in found.items() if excess(each) > LIMIT]
    if bad:
        raise SystemExit(f"farther from float32 than llama.cpp: {', '.join(bad)}")


def compare(path: Path, name: str, into: Found, options: argparse.Namespace) -> None:
    """Add what one file shows."""
    with edgellm.load(path, threads=1, kv_type="f32", backend="cpu") as model:
        prompts, windows = texts_for(model, options.prompts, options.positions)
        ours = [greedy(model, prompt, options.tokens) for prompt in prompts]
        rows = [model.logits(window) for window in windows]
        theirs, kept = peer(path, prompts, windows, model.context, options)
        with open_gguf(path) as gguf:
            weights = WeightStore(gguf)
            gold = Reference(load_graph(gguf, model.context)[1], weights)
            texts = theirs.pop("usual")
            into.prompts += len(prompts)
            for other, written in theirs.items():
                into.themselves[other] += sum(a != b for a, b in zip(texts, written, strict=True))
            for i, prompt in enumerate(prompts):
                if ours[i][0] != texts[i]:
                    at = next(j for j, (a, b) in enumerate(zip(ours[i][0], texts[i], strict=True)) if a != b)
                    logits = gold.logits(prompt + texts[i][:at])[-1]
                    line = parting(into, logits, ours[i][1][at], kept["steps"][i][at])
                    if options.details:
                        print(f"{name}, prompt {i}, token {at}: {line}", flush=True)
            score(into, model, [gold.logits(window) for window in windows], rows, np.split(kept["windows"], ends(windows)))
            weights.close()
    (ours_same, their_same), (our_kl, their_kl) = into.same[-1], into.divergence[-1]
    print(f"{name}: float32's token {ours_same:.2%}, llama.cpp {their_same:.2%}; KL {our_kl:.2e}, {their_kl:.2e}", flush=True)


def texts_for(model: edgellm.Model, prompts: int, positions: int) -> tuple[list[Ids], list[Ids]]:
    """Beginnings of stories, and windows of one long text."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from story_text import story_text

    stories = story_text(positions // 20).split("\n\n")
    begin = [model.tokenizer.bos_id] if model.tokenizer.add_bos and model.tokenizer.bos_id is not None else []
    ids = begin + list(model.tokenizer.encode("\n\n".join(stories)))[:positions]
    windows = [ids[at : at + model.context] for at in range(0, len(ids), model.context)]
    begins = dict.fromkeys(tuple(begin) + tuple(model.tokenizer.encode(story))[:PROMPT] for story in stories)
    return [list(prompt) for prompt in begins][:prompts], windows


def ends(windows: Sequence[Ids]) -> Any:
    return np.cumsum([len(window) for window in windows])[:-1]


def greedy(model: edgellm.Model, prompt: Ids, n: int) -> tuple[Ids, Any]:
    """So many tokens after a prompt, and the logits (n, n_vocab) that each was the largest of."""
    rows: list[Any] = []
    written: Ids = []
    with model.engine.alone() as executable:
        conversation = Conversation.empty(executable)
        step = prompt
        while len(written) < n:
            rows.append(conversation.compute(executable, np.array(step, np.int32), np.array([len(step) - 1], np.int32))[0].copy())
            written.append(int(rows[-1].argmax()))
            step = written[-1:]
    return written, np.stack(rows)


def peer(path: Path, prompts: list[Ids], windows: list[Ids], context: int, options: argparse.Namespace) -> tuple[Any, Any]:
    """llama.cpp's texts by configuration, and the logits of its usual one."""
    job = path.with_suffix(".json")
    job.write_text(json.dumps({"context": context, "prompts": prompts, "windows": windows, "tokens": options.tokens}), "utf-8")
    program = ROOT / "scripts" / "peers" / "llama_cpp_greedy.py"
    texts = json_of([options.peer, str(program), str(path), str(job), str(path.with_suffix(".npz"))])
    return texts, np.load(path.with_suffix(".npz"))


def parting(into: Found, gold: Any, ours: Any, theirs: Any) -> str:
    """Count where two texts part, by the logits (n_vocab,) of the first token that differs; says what was found."""
    second, first = np.sort(gold)[-2:]
    best, error, other = int(gold.argmax()), float(np.abs(ours - gold).max()), float(np.abs(theirs - gold).max())
    into.parted += 1
    into.ours_right += int(ours.argmax()) == best
    into.theirs_right += int(theirs.argmax()) == best
    into.margins.append(float(first - second))
    into.errors.append((error, other))
    whose = "ours" if int(ours.argmax()) == best else "llama.cpp's" if int(theirs.argmax()) == best else "neither"
    return f"float32 leads by {first - second:.4f}, error {error:.4f}, llama.cpp's {other:.4f}; float32 takes {whose}"


def score(into: Found, model: edgellm.Model, gold: list[Any], ours: list[Any], theirs: list[Any]) -> None:
    both = (Divergences(), Divergences())
    for right, *rows in zip(gold, ours, theirs, strict=True):
        base, nothing = log_softmax(right, model), np.zeros(len(right), np.int32)
        for divergences, logits in zip(both, rows, strict=True):
            divergences.add(base, log_softmax(logits, model), nothing)
    ours_found, theirs_found = (divergences.result() for divergences in both)
    into.same.append((ours_found.same_top, theirs_found.same_top))
    into.divergence.append((ours_found.mean, theirs_found.mean))


def excess(found: Found) -> float:
    """Our divergence as a share of llama.cpp's, the geometric mean over models; those of rounding noise do not count."""
    shares = [max(ours, 1e-7) / max(theirs, 1e-7) for ours, theirs in found.divergence]
    return float(np.exp(np.mean(np.log(shares))))


def table(found: dict[str, Found]) -> str:
    """In Markdown: a line for each type."""
    names = list(next(iter(found.values())).themselves)
    lines = [
        "| type | texts that part | lead of float32 | largest error | float32 takes | "
        + " | ".join(f"llama.cpp, {name}" for name in names)
        + " | same token | KL divergence |",
        "|---|--:|--:|--:|--:|" + "--:|" * (len(names) + 2),
    ]
    for kind, each in found.items():
        lead = f"{np.median(each.margins):.3f}" if each.margins else ""
        error = " : ".join(f"{value:.3f}" for value in np.median(each.errors, axis=0)) if each.errors else ""
        takes = f"{each.ours_right} : {each.theirs_right}" if each.parted else ""
        same, kl = np.mean(each.same, axis=0), np.mean(each.divergence, axis=0)
        lines.append(
            f"| {kind} | {each.parted} of {each.prompts} | {lead} | {error} | {takes} | "
            + " | ".join(str(each.themselves[name]) for name in names)
            + f" | {same[0]:.2%} : {same[1]:.2%} | {kl[0]:.1e} : {kl[1]:.1e} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
