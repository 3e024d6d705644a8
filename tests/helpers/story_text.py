"""A text of simple stories, made by rule: long enough to measure perplexity on, and the same everywhere."""

from __future__ import annotations

import random

NAMES = ("Lily", "Tom", "Ben", "Mia", "Sam", "Anna", "Max", "Lucy")
THINGS = ("a red ball", "a small boat", "a kite", "a loaf of bread", "an old key", "a blue cup", "a warm coat", "a shiny stone")
PLACES = ("the park", "the garden", "the river", "the kitchen", "the big hill", "the school", "the forest", "the market")
ANIMALS = ("dog", "cat", "bird", "rabbit", "duck", "bear", "mouse", "fish")
MOODS = ("happy", "sad", "surprised", "tired", "proud", "scared", "brave", "curious")
STORIES = (
    "Once upon a time, there was a little child named {n}. {n} loved to play in {p}. One day, {n} found {t} near {q} and felt "
    "very {f}.",
    '{n} and {m} went to {p} with their {a}. "Look at {t}!" said {m}. They were {f}, but soon they were {g}.',
    'The {a} ran away from {p}. {n} looked for it in {q}. "Please come back," said {n}. The {a} came back, and {n} was {g}.',
    'It was a sunny day. {n} wanted {t}, but {m} did not want to share. Mom said, "You can take turns." Then they were {g} and '
    "played together in {q}.",
)


def story_text(paragraphs: int, seed: int = 5) -> str:
    """So many short stories, with a blank line between two."""
    rng, found = random.Random(seed), []
    for _ in range(paragraphs):
        (n, m), (p, q), (f, g) = (rng.sample(words, 2) for words in (NAMES, PLACES, MOODS))
        found.append(rng.choice(STORIES).format(n=n, m=m, p=p, q=q, f=f, g=g, t=rng.choice(THINGS), a=rng.choice(ANIMALS)))
    return "\n\n".join(found)
