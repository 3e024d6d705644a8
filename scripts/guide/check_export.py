"""Checks an exported guide against the trainer: tokens of conversations, F32 logits, the stated size; llama.cpp if asked.

python scripts/guide/check_export.py /tmp/guide/run --llama-cpp
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np
import torch
from corpus.facts import PARAMETERS
from export import load_trained, write
from model import Guide
from tokenizer import GuideTokenizer, Turns
from write_corpus import conversations

import edgellm
from edgellm.chat import encode_chat, find_template
from edgellm.formats.gguf import open_gguf

CEILING = 1e-3  # of F32 logits: both sides compute in float32, in different orders
COUNT = 20
WORDS = {"five": 5.0, "six": 6.0, "seven": 7.0, "eight": 8.0}


def sample(count: int) -> list[tuple[str, Turns]]:
    """Conversations of a seed that training does not use."""
    stream = conversations(4711)
    return [next(stream) for _ in range(count)]


def same_tokens(path: Path, tokenizer: GuideTokenizer) -> None:
    """edgellm's template and tokenizer must give the ids that the model was trained on."""
    theirs = edgellm.load_tokenizer(path)
    with open_gguf(path) as file:
        template = find_template(file.metadata, theirs, file=str(path))
        for system, turns in sample(COUNT * 10):
            messages = [{"role": "system", "content": system}] if system else []
            for question, answer in turns[:-1]:
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            messages.append({"role": "user", "content": turns[-1][0]})
            ids = encode_chat(theirs, template.render(messages))
            if ids != tokenizer.prompt(turns[:-1], turns[-1][0], system):
                raise SystemExit(f"edgellm and the trainer cut this conversation differently: {turns}")
    print(f"tokens: {COUNT * 10} conversations are cut as in training")


def same_logits(path: Path, guide: Guide, tokenizer: GuideTokenizer) -> None:
    """The largest difference of any logit over some conversations."""
    worst = 0.0
    with edgellm.load(path, kv_type="f32") as model, torch.no_grad():
        for system, turns in sample(COUNT):
            ids = tokenizer.prompt(turns[:-1], turns[-1][0], system)[: guide.shape.context]
            ours = guide(torch.tensor([ids]))[0].numpy()
            worst = max(worst, float(np.abs(model.logits(ids) - ours).max()))
    print(f"logits: largest difference {worst:.2e} over {COUNT} conversations")
    if worst > CEILING:
        raise SystemExit(f"the exported file's logits differ by {worst:.2e}, more than {CEILING:g}")


def stated_size(guide: Guide) -> None:
    """The guide's answers about its own size must be true."""
    millions = next((value for word, value in WORDS.items() if re.search(rf"\b{word}\b", PARAMETERS)), 0.0)
    number = millions + 0.5 * ("half" in PARAMETERS)
    if abs(guide.parameters_in_all / 1e6 - number) > 0.3:
        raise SystemExit(f"the guide has {guide.parameters_in_all / 1e6:.2f} M parameters, but corpus/facts.py says {PARAMETERS!r}")
    print(f"size: {PARAMETERS} parameters ({guide.parameters_in_all / 1e6:.2f} M)")


def same_in_llama_cpp(path: Path, tokenizer: GuideTokenizer) -> None:
    """llama-cpp-python must continue with the same greedy tokens as edgellm."""
    import llama_cpp  # an extra package that only this check needs

    other = llama_cpp.Llama(str(path), n_ctx=1024, verbose=False, logits_all=False)
    with edgellm.load(path, kv_type="f32") as model:
        for _, turns in sample(COUNT):
            ids = tokenizer.prompt([], turns[0][0])
            ours = list(model.generate(ids, max_tokens=60, temperature=0).token_ids)
            theirs: list[int] = []
            for token in other.generate(ids, temp=0.0, repeat_penalty=1.0):
                if token == other.token_eos() or len(theirs) == 60:
                    break
                theirs.append(int(token))
            if ours != theirs:
                raise SystemExit(
                    f"llama.cpp answers {turns[0][0]!r} differently:\n  {tokenizer.decode(ours)}\n  {tokenizer.decode(theirs)}"
                )
    print(f"llama.cpp: the same greedy tokens for {COUNT} questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the training run")
    parser.add_argument("--llama-cpp", action="store_true", help="compare with llama-cpp-python, which must be installed")
    parser.add_argument("--any-size", action="store_true", help="for trial runs: do not compare the size with what the guide says")
    options = parser.parse_args()
    guide, tokenizer = load_trained(options.folder)
    with tempfile.TemporaryDirectory(prefix="edgellm-guide-") as folder:
        path = Path(folder) / "guide-F32.gguf"
        write(guide, tokenizer, path, "F32")
        same_tokens(path, tokenizer)
        same_logits(path, guide, tokenizer)
        if not options.any_size:
            stated_size(guide)
        if options.llama_cpp:
            same_in_llama_cpp(path, tokenizer)


if __name__ == "__main__":
    main()
