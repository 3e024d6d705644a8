"""Writes the guide's model card from the file, the evaluation's report and the training run.

python scripts/guide/card.py edgellm/data/guide.gguf /tmp/guide/report.json /tmp/guide/run edgellm/data/guide.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import torch

from edgellm.formats.gguf import open_gguf

CARD = """# The guide

The model that comes with edgellm, so that `edgellm chat` works at once and offline. It explains edgellm, and says what it is: tiny.

| | |
|---|---|
| file | {file}, {size:.2f} MB |
| sha256 | `{digest}` |
| architecture | llama: {layers} layers, {width} wide, {heads} heads, {kv_heads} KV heads, feed-forward {hidden}, {context} tokens |
| parameters | {parameters:.2f} M, embeddings tied; vocabulary of {vocabulary} (SentencePiece BPE with byte fallback) |
| types | {types} |
| training | from scratch: {tokens:.1f} M tokens in {minutes:.0f} minutes, {steps} steps |
| data | conversations written by `scripts/guide/write_corpus.py`, all text the project's own |
| licence | MIT |
| score | {right} of {asked} held-out questions ({score:.1%}), greedy, by the rubric of `scripts/guide/questions.toml` |
{notes}
It speaks English only, knows nothing but edgellm, and can be wrong. `edgellm --help` and the README are right. In `edgellm chat` a
rule (`edgellm/cli/chat/guide.py`) answers for it where a message is in another language, about code, asks to explain what it has
never met, or is about what edgellm has learned since: experts, embeddings, converting. The scores below are the model's alone.

## How it was made

{commands}

## Scores

| topic | right | asked |
|---|---|---|
{scores}

## Five conversations

Greedy, unedited, from `scripts/guide/conversations.toml`.
{transcripts}"""
COMMANDS = """```sh
# the first two as of commit fc46bc3, whose trainer had no reader; the next two as of 12a9628, with other shares of conversations
python scripts/guide/write_corpus.py /tmp/guide/1.jsonl --megabytes 160
python scripts/guide/train.py /tmp/guide/1.jsonl /tmp/guide/1 --minutes 97 --threads 2
python scripts/guide/write_corpus.py /tmp/guide/2.jsonl --megabytes 200 --seed 4
python scripts/guide/train.py /tmp/guide/2.jsonl /tmp/guide/2 --start /tmp/guide/1 --minutes 62 --rate 2.5e-3 --seed 5
python scripts/guide/write_corpus.py /tmp/guide/3.jsonl --megabytes 80 --seed 6
python scripts/guide/train.py /tmp/guide/3.jsonl /tmp/guide/3 --start /tmp/guide/2 --minutes 30 --rate 1.5e-3 --seed 6 --reading 0
python scripts/guide/average.py /tmp/guide/2 /tmp/guide/3 /tmp/guide/run
python scripts/guide/check_export.py /tmp/guide/run --llama-cpp
python scripts/guide/export.py /tmp/guide/run edgellm/data/guide.gguf --type Q8_0
python scripts/guide/evaluate.py edgellm/data/guide.gguf --json /tmp/guide/report.json
python scripts/guide/card.py edgellm/data/guide.gguf /tmp/guide/report.json /tmp/guide/run edgellm/data/guide.md
```"""


def card(model: Path, report: Path, run: Path, notes: list[str]) -> str:
    """The card's Markdown."""
    state = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    result = json.loads(report.read_text(encoding="utf-8"))
    with open_gguf(model) as file:
        types: dict[str, int] = {}
        for tensor in file.tensors.values():
            types[tensor.type.name] = types.get(tensor.type.name, 0) + 1
        parameters = sum(int(torch.tensor(tensor.shape).prod()) for tensor in file.tensors.values())
    right, asked = sum(result["right"].values()), sum(result["asked"].values())
    rows = [f"| {topic} | {result['right'].get(topic, 0)} | {count} |" for topic, count in sorted(result["asked"].items())]
    transcripts = "".join(_transcript(title, turns) for title, turns in result["transcripts"].items())
    progress = state["progress"]
    return CARD.format(
        file=model.name,
        size=model.stat().st_size / 1e6,
        digest=hashlib.sha256(model.read_bytes()).hexdigest(),
        parameters=parameters / 1e6,
        types=", ".join(f"{count} {name}" for name, count in types.items()),
        tokens=(progress["tokens"] + progress["tokens_before"]) / 1e6,
        steps=progress["steps"] + progress["steps_before"],
        minutes=(progress["seconds"] + progress["seconds_before"]) / 60,
        right=right,
        asked=asked,
        score=right / max(asked, 1),
        scores="\n".join(rows),
        transcripts=transcripts,
        commands=COMMANDS,
        notes="".join(f"| checked | {note} |\n" for note in notes),
        **state["shape"],
    )


def _transcript(title: str, turns: list[list[str]]) -> str:
    lines = "\n".join(f"> {asked}\n{answered}\n" for asked, answered in turns)
    return f"\n### {title}\n\n```text\n{lines}```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("report", type=Path, help="of evaluate.py --json")
    parser.add_argument("run", type=Path, help="folder of the training run")
    parser.add_argument("output", type=Path)
    parser.add_argument("--note", action="append", default=[], help="a line of what else was checked, such as llama.cpp's version")
    options = parser.parse_args()
    options.output.write_text(card(options.model, options.report, options.run, options.note), encoding="utf-8")


if __name__ == "__main__":
    main()
