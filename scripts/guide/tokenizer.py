"""The guide's tokenizer: SentencePiece BPE with byte fallback, trained on the corpus; conversations as token ids."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sentencepiece

UNKNOWN, BOS, EOS = 0, 1, 2
USER, ASSISTANT, SYSTEM = "<|user|>", "<|assistant|>", "<|system|>"
# What these texts become is what `Conversations` writes: the two must agree, and check_export.py sees that they do.
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SAMPLE_LINES = 40_000  # conversations from which the vocabulary is learned
Turns = list[tuple[str, str]]


def read_corpus(path: Path) -> Iterator[tuple[str, Turns]]:
    """(system prompt, turns) of each line that write_corpus.py wrote."""
    with path.open(encoding="ascii") as file:
        for line in file:
            talk = json.loads(line)
            yield talk["system"], [(question, answer) for question, answer in talk["turns"]]


def train_tokenizer(corpus: Path, model: Path, vocabulary: int, threads: int = 1) -> None:
    """Learn a vocabulary from the corpus and write SentencePiece's model file."""

    def texts() -> Iterator[str]:
        for number, (system, turns) in enumerate(read_corpus(corpus)):
            if number >= SAMPLE_LINES:
                return
            yield from ([system] if system else [])
            for question, answer in turns:
                yield question
                yield answer

    with model.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts(),
            model_writer=file,
            vocab_size=vocabulary,
            model_type="bpe",
            byte_fallback=True,
            unk_id=UNKNOWN,
            bos_id=BOS,
            eos_id=EOS,
            control_symbols=[USER, ASSISTANT, SYSTEM],
            add_dummy_prefix=False,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_digits=True,
            character_coverage=1.0,
            max_sentence_length=1 << 16,
            num_threads=threads,
            minloglevel=2,
        )


@dataclass(frozen=True, slots=True)
class Conversations:
    """The whole corpus as ids, the weight with which each id counts in the loss, and at the mark before an answer the number of
    what it says, elsewhere -1; `starts` cuts all three into conversations."""

    ids: npt.NDArray[np.uint16]
    weights: npt.NDArray[np.float16]
    meanings: npt.NDArray[np.int16]
    starts: npt.NDArray[np.int64]  # (n + 1,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, ids=self.ids, weights=self.weights, meanings=self.meanings, starts=self.starts)

    @classmethod
    def load(cls, path: Path) -> Conversations:
        with np.load(path) as arrays:
            return cls(arrays["ids"], arrays["weights"], arrays["meanings"], arrays["starts"])


class GuideTokenizer:
    """Text and conversations to ids and back."""

    def __init__(self, model: Path) -> None:
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.user, self.assistant, self.system = (self.pieces.piece_to_id(text) for text in (USER, ASSISTANT, SYSTEM))

    def __len__(self) -> int:
        return int(self.pieces.get_piece_size())

    def encode(self, text: str, *, dropout: float = 0.0) -> list[int]:
        """Ids of a text. `dropout`: share of merges that are left out at random, so that odd spellings are seen in training."""
        if dropout:
            return list(self.pieces.encode(text, enable_sampling=True, alpha=dropout, nbest_size=-1))
        return list(self.pieces.encode(text))

    def prompt(self, messages: Turns, question: str, system: str = "") -> list[int]:
        """Ids up to the place where the answer to `question` begins."""
        ids = [BOS, *([self.system, *self.encode(system), EOS] if system else [])]
        for asked, answered in messages:
            ids += [self.user, *self.encode(asked), EOS, self.assistant, *self.encode(answered), EOS]
        return [*ids, self.user, *self.encode(question), EOS, self.assistant]

    def decode(self, ids: list[int]) -> str:
        return str(self.pieces.decode(ids))

    def conversation(
        self, system: str, turns: Turns, dice: random.Random, meanings: Mapping[str, int], *, user_weight: float
    ) -> tuple[list[int], list[float], list[int]]:
        """Ids, loss weights (1 for answers and their end, `user_weight` for questions, 0 for marks) and meanings."""
        ids = [BOS, *([self.system, *self.encode(system), EOS] if system else [])]
        weights, means = [0.0] * len(ids), [-1] * len(ids)
        for question, answer in turns:
            asked = self.encode(question, dropout=0.1 if dice.random() < 0.2 else 0.0)
            answered = self.encode(answer)
            ids += [self.user, *asked, EOS, self.assistant, *answered, EOS]
            weights += [0.0, *[user_weight] * len(asked), user_weight, 0.0, *[1.0] * (len(answered) + 1)]
            means += [*[-1] * (len(asked) + 2), meanings.get(answer, -1), *[-1] * (len(answered) + 1)]
        return ids, weights, means

    def corpus(self, path: Path, context: int, meanings: Mapping[str, int], *, user_weight: float, seed: int = 1) -> Conversations:
        """Every conversation of a corpus file, cut at `context` tokens."""
        dice = random.Random(seed)
        sentencepiece.set_random_generator_seed(seed)
        ids: list[npt.NDArray[np.uint16]] = []
        weights: list[npt.NDArray[np.float16]] = []
        means: list[npt.NDArray[np.int16]] = []
        for system, turns in read_corpus(path):
            some_ids, some_weights, some_means = self.conversation(system, turns, dice, meanings, user_weight=user_weight)
            ids.append(np.array(some_ids[:context], np.uint16))
            weights.append(np.array(some_weights[:context], np.float16))
            means.append(np.array(some_means[:context], np.int16))
        starts = np.cumsum([0, *(len(some) for some in ids)])
        return Conversations(np.concatenate(ids), np.concatenate(weights), np.concatenate(means), starts)
