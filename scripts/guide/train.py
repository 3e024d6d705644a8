"""Trains the guide: tokenizer, then model, within a number of minutes; resumes from its checkpoint.

    python scripts/guide/train.py /tmp/guide/corpus.jsonl /tmp/guide/run --minutes 80 --threads 2
"""
from __future__ import annotations

import argparse
import dataclasses
import math
import time
from pathlib import Path
from typing import Any  # a checkpoint's state dictionaries

import torch
from batches import batches
from model import Guide, Shape
from tokenizer import EOS, Conversations, GuideTokenizer, train_tokenizer
from torch import Tensor

PROBES = ("what is gguf?", "which model fits 8 gb", "hi!", "who won the world cup in 1990", "how do i leave", "and on a mac?")
EMBEDDINGS = 0.3                             # of the rate, where Muon has the rest: rare words are overwritten at the full one
WARMUP, FLOOR = 0.03, 0.04                   # of the whole time; of the highest learning rate


@dataclasses.dataclass(slots=True)
class Progress:
    """How far a run is: seconds of training, steps and tokens, over all its starts."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = prepare_tokenizer(options)
    corpus = prepare_corpus(options, tokenizer)
    shape = Shape(len(tokenizer), options.width, options.layers, options.heads, options.kv_heads, options.hidden)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    guide = Guide(shape).to(device)
    print(f"{guide.parameters_in_all / 1e6:.2f} M parameters, {len(corpus)} conversations, "
          f"{len(corpus.ids) / 1e6:.2f} M tokens, {device}", flush=True)
    train(guide, tokenizer, corpus, options, device)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path, help="where tokenizer, ids and checkpoint go")
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
        tokenizer.corpus(options.corpus, Shape().context, user_weight=options.user_weight, seed=options.seed).save(path)
    return Conversations.load(path)


def optimisers(guide: Guide, kind: str, rate: float) -> list[torch.optim.Optimizer]:
    """AdamW for all, or Muon for the matrices of the layers and AdamW for embeddings and norms."""
    matrices = [p for block in guide.blocks for p in block.parameters() if p.dim() == 2]
    others = [p for p in guide.parameters() if not any(p is m for m in matrices)]
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return [torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))]
    return [torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)]


def rate_at(share: float) -> float:
    """Factor of the learning rate after that share of the time: a short warm-up, then a cosine."""
    if share < WARMUP:
        return share / WARMUP
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, (share - WARMUP) / (1 - WARMUP))))


def train(guide: Guide, tokenizer: GuideTokenizer, corpus: Conversations, options: argparse.Namespace, device: str) -> None:
    """Steps until the minutes are over; the checkpoint is written now and then and at the end."""
    path = options.folder / "checkpoint.pt"
    steppers = optimisers(guide, options.optimiser, options.rate)
    progress = resume(path, guide, steppers, device)
    feed = batches(corpus, options.batch, options.seed + progress.steps)
    budget, saved, said, mean = options.minutes * 60, time.monotonic(), time.monotonic(), 0.0
    while progress.seconds < budget:
        began = time.monotonic()
        ids, weights = (torch.from_numpy(array).to(device) for array in next(feed))
        rate = options.rate * rate_at(max(progress.seconds / budget, 1e-4))
        loss = step(guide, steppers, ids, weights, rate, device)
        progress.steps, progress.tokens = progress.steps + 1, progress.tokens + ids.numel()
        progress.seconds += time.monotonic() - began
        mean = loss if not mean else 0.95 * mean + 0.05 * loss
        if time.monotonic() - said > 20:
            said = time.monotonic()
            print(f"{progress.seconds / 60:6.2f} min  step {progress.steps}  {progress.tokens / 1e6:.2f} M tokens  "
                  f"{progress.tokens / progress.seconds:.0f} tokens/s  rate {rate:.5f}  loss {mean:.4f}", flush=True)
        if time.monotonic() - saved > options.save_minutes * 60:
            saved = time.monotonic()
            save(path, guide, steppers, progress)
            show_samples(guide, tokenizer, device)
    save(path, guide, steppers, progress)
    show_samples(guide, tokenizer, device)


def step(guide: Guide, steppers: list[torch.optim.Optimizer], ids: Tensor, weights: Tensor, rate: float, device: str) -> float:
    """One step of all optimisers; returns the loss."""
    with torch.autocast(device, torch.bfloat16):
        loss = guide.loss(ids, weights)
    loss.backward()                          # type: ignore[no-untyped-call]  # torch types it so
    torch.nn.utils.clip_grad_norm_(guide.parameters(), 1.0)
    for stepper in steppers:
        slower = len(steppers) > 1 and isinstance(stepper, torch.optim.AdamW)
        for group in stepper.param_groups:
            group["lr"] = rate * (EMBEDDINGS if slower else 1.0)
        stepper.step()
        stepper.zero_grad(set_to_none=True)
    return float(loss.detach())


def save(path: Path, guide: Guide, steppers: list[torch.optim.Optimizer], progress: Progress) -> None:
    state: dict[str, Any] = {"shape": guide.shape.as_dict(), "model": guide.state_dict(), "progress": dataclasses.asdict(progress),
                             "optimisers": [stepper.state_dict() for stepper in steppers]}
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def resume(path: Path, guide: Guide, steppers: list[torch.optim.Optimizer], device: str) -> Progress:
    if not path.exists():
        return Progress()
    state = torch.load(path, map_location=device, weights_only=True)
    guide.load_state_dict(state["model"])
    for stepper, kept in zip(steppers, state["optimisers"], strict=True):
        stepper.load_state_dict(kept)
    return Progress(**state["progress"])


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
