"""Trains the guide: tokenizer, then model, within a number of minutes; resumes from its checkpoint.

python scripts/guide/train.py /tmp/guide/corpus.jsonl /tmp/guide/run --minutes 80 --threads 2
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import shutil
import time
from pathlib import Path
from typing import Any  # a checkpoint's state dictionaries

import torch
from batches import batches
from corpus.intents import meanings
from model import Guide, Reader, Shape
from tokenizer import EOS, Conversations, GuideTokenizer, train_tokenizer
from torch import Tensor

PROBES = ("what is gguf?", "which model fits 8 gb", "hi!", "who won the world cup in 1990", "how do i leave", "and on a mac?")
EMBEDDINGS = 0.5  # of the rate that Muon has for the rest: rare words are overwritten at the full one
READ_FIRST, READ_LATER = 1.0, 0.5  # share of rows that are only read: in the first part of the time, and afterwards
READING = 1.0  # weight of the loss of meanings beside the one of tokens
WARMUP, FLOOR = 0.03, 0.04  # of the whole time; of the highest learning rate


@dataclasses.dataclass(slots=True)
class Progress:
    """How far a run is: seconds of training, steps and tokens, over all its starts; and those of the run that it began from."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    seconds_before: float = 0.0
    steps_before: int = 0
    tokens_before: int = 0


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.start and not (options.folder / "tokenizer.model").exists():
        shutil.copyfile(options.start / "tokenizer.model", options.folder / "tokenizer.model")
    tokenizer = prepare_tokenizer(options)
    corpus = prepare_corpus(options, tokenizer)
    shape = Shape(len(tokenizer), options.width, options.layers, options.heads, options.kv_heads, options.hidden)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    guide = Guide(shape).to(device)
    reader = Reader(shape, max(meanings().values()) + 1).to(device)
    print(
        f"{guide.parameters_in_all / 1e6:.2f} M parameters, {len(corpus)} conversations, "
        f"{len(corpus.ids) / 1e6:.2f} M tokens, {device}",
        flush=True,
    )
    train(guide, reader, tokenizer, corpus, options, device)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path, help="where tokenizer, ids and checkpoint go")
    parser.add_argument("--start", type=Path, help="folder of a run whose tokenizer and weights to begin with")
    parser.add_argument("--minutes", type=float, default=80.0, help="wall clock of the training itself; the schedule follows it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=3072)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4096, help="tokens per step")
    parser.add_argument("--rate", type=float, default=5e-3, help="highest learning rate")
    parser.add_argument("--optimiser", choices=("muon", "adamw"), default="muon")
    parser.add_argument("--user-weight", type=float, default=0.1, help="weight of the questions' own tokens in the loss")
    parser.add_argument("--reading", type=float, default=0.25, help="part of the time in which questions are only read, at first")
    parser.add_argument("--save-minutes", type=float, default=5.0)
    return parser.parse_args()


def prepare_tokenizer(options: argparse.Namespace) -> GuideTokenizer:
    path = options.folder / "tokenizer.model"
    if not path.exists():
        train_tokenizer(options.corpus, path, options.vocabulary, options.threads)
    return GuideTokenizer(path)


def prepare_corpus(options: argparse.Namespace, tokenizer: GuideTokenizer) -> Conversations:
    path = options.folder / "ids.npz"
    if not path.exists():
        tokenizer.corpus(options.corpus, Shape().context, meanings(), user_weight=options.user_weight, seed=options.seed).save(path)
    return Conversations.load(path)


def optimisers(guide: Guide, reader: Reader, kind: str, rate: float) -> list[torch.optim.Optimizer]:
    """AdamW for all, or Muon for the matrices of the layers and AdamW for embeddings, norms and the reader."""
    matrices = [p for block in guide.blocks for p in block.parameters() if p.dim() == 2]
    others = [p for p in (*guide.parameters(), *reader.parameters()) if not any(p is m for m in matrices)]
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return [torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_at(share: float) -> float:
    """Factor of the learning rate after that share of the time: a short warm-up, then a cosine."""
    if share < WARMUP:
        return share / WARMUP
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, (share - WARMUP) / (1 - WARMUP))))


def train(
    guide: Guide, reader: Reader, tokenizer: GuideTokenizer, corpus: Conversations, options: argparse.Namespace, device: str
) -> None:
    """Steps until the minutes are over; the checkpoint is written now and then and at the end."""
    path = options.folder / "checkpoint.pt"
    steppers = optimisers(guide, reader, options.optimiser, options.rate)
    resumed = path.exists() or not options.start
    progress = resume(path, guide, reader, steppers, device) if resumed else begin(options.start, guide, reader)
    budget, saved, said, means = options.minutes * 60, time.monotonic(), time.monotonic(), (0.0, 0.0)
    feed = batches(
        corpus,
        options.batch,
        options.seed + progress.steps,
        lambda: READ_FIRST if progress.seconds < options.reading * budget else READ_LATER,
    )
    while progress.seconds < budget:
        began = time.monotonic()
        batch = [torch.from_numpy(array).to(device) for array in next(feed)]
        rate = options.rate * rate_at(max(progress.seconds / budget, 1e-4))
        losses = step(guide, reader, steppers, batch, rate, tokenizer.user, device)
        progress.steps, progress.tokens = progress.steps + 1, progress.tokens + batch[0].numel()
        progress.seconds += time.monotonic() - began
        means = losses if not any(means) else (0.95 * means[0] + 0.05 * losses[0], 0.95 * means[1] + 0.05 * losses[1])
        if time.monotonic() - said > 20:
            said = time.monotonic()
            print(
                f"{progress.seconds / 60:6.2f} min  step {progress.steps}  {progress.tokens / 1e6:.2f} M tokens  "
                f"{progress.tokens / progress.seconds:.0f} tokens/s  "
                f"rate {rate:.5f}  loss {means[0]:.4f}  of reading {means[1]:.4f}",
                flush=True,
            )
        if time.monotonic() - saved > options.save_minutes * 60:
            saved = time.monotonic()
            save(path, guide, reader, steppers, progress)
            show_samples(guide, tokenizer, device)
    save(path, guide, reader, steppers, progress)
    show_samples(guide, tokenizer, device)


def step(
    guide: Guide, reader: Reader, steppers: list[torch.optim.Optimizer], batch: list[Tensor], rate: float, user: int, device: str
) -> tuple[float, float]:
    """One step of all optimisers; returns the losses of the next tokens and of the meanings."""
    with torch.autocast(device, torch.bfloat16):
        tokens, read = guide.losses(*batch, user, reader)
    (tokens + READING * read).backward()  # type: ignore[no-untyped-call]  # torch types it so
    torch.nn.utils.clip_grad_norm_(guide.parameters(), 1.0)
    for stepper in steppers:
        slower = len(steppers) > 1 and isinstance(stepper, torch.optim.AdamW)
        for group in stepper.param_groups:
            group["lr"] = rate * (EMBEDDINGS if slower else 1.0)
        stepper.step()
        stepper.zero_grad(set_to_none=True)
    return float(tokens.detach()), float(read.detach())


def save(path: Path, guide: Guide, reader: Reader, steppers: list[torch.optim.Optimizer], progress: Progress) -> None:
    state: dict[str, Any] = {
        "shape": guide.shape.as_dict(),
        "model": guide.state_dict(),
        "reader": reader.state_dict(),
        "progress": dataclasses.asdict(progress),
        "optimisers": [stepper.state_dict() for stepper in steppers],
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def resume(path: Path, guide: Guide, reader: Reader, steppers: list[torch.optim.Optimizer], device: str) -> Progress:
    if not path.exists():
        return Progress()
    state = torch.load(path, map_location=device, weights_only=True)
    guide.load_state_dict(state["model"])
    reader.load_state_dict(state["reader"])
    for stepper, kept in zip(steppers, state["optimisers"], strict=True):
        stepper.load_state_dict(kept)
    return Progress(**state["progress"])


def begin(folder: Path, guide: Guide, reader: Reader) -> Progress:
    """The weights of another run, with nothing of its optimisers; its reader, too, if it has one of the same meanings."""
    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    guide.load_state_dict(state["model"])
    if "reader" in state and all(state["reader"][name].shape == weight.shape for name, weight in reader.state_dict().items()):
        reader.load_state_dict(state["reader"])
    old = Progress(**state["progress"])
    return Progress(0.0, 0, 0, old.seconds + old.seconds_before, old.steps + old.steps_before, old.tokens + old.tokens_before)


@torch.no_grad()
def answer(guide: Guide, tokenizer: GuideTokenizer, question: str, device: str, limit: int = 80) -> str:
    """The greedy answer to one question."""
    ids = tokenizer.prompt([], question)
    start = len(ids)
    while len(ids) < start + limit:
        token = int(guide(torch.tensor([ids], device=device))[0, -1].argmax())
        if token == EOS:
            break
        ids.append(token)
    return tokenizer.decode(ids[start:])


def show_samples(guide: Guide, tokenizer: GuideTokenizer, device: str) -> None:
    for question in PROBES:
        print(f"  > {question}\n    {answer(guide, tokenizer, question, device)}", flush=True)


if __name__ == "__main__":
    main()
