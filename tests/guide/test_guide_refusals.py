"""Questions that the guide is not trained on: other languages, code, the world at large; those it was made for still reach it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from places import ROOT

import edgellm
from edgellm.cli.chat.guide import CODE, FACTS, LANGUAGE, NEWER, refusal

sys.path.append(str(ROOT / "scripts" / "guide"))

from corpus.commands import unknown_names  # the folder of scripts is not a package
from evaluate import known_commands
from rubric import read_questions


@pytest.fixture(scope="module")
def knows() -> Callable[[str], bool]:
    tokenizer = edgellm.load_tokenizer("guide")
    return lambda word: tokenizer.token_id(f"\N{LOWER ONE EIGHTH BLOCK}{word}") is not None


@pytest.mark.parametrize(
    "text",
    [
        "Wie geht es dir?",
        "Welches Modell passt in 8 GB?",
        "Wie lade ich ein größeres Modell herunter?",
        "Bonjour, comment ça va ?",
        "Quel modèle dois-je prendre avec 8 Go de RAM ?",
        "¿Cómo descargo un modelo?",
        "Qual è il modello migliore?",
        "Como você está?",
        "Hoe gaat het met je?",
        "hola",
        "Jak się masz?",
        "Hur mår du, vad är det här?",
        "Привет, как дела?",
        "你好，你是谁？",
        "こんにちは",
        "안녕하세요",
        "مرحبا",
    ],
)
def test_other_languages(text: str, knows: Callable[[str], bool]) -> None:
    assert refusal(text, knows) == LANGUAGE


@pytest.mark.parametrize(
    "text",
    [
        "Write a python function that reverses a string",
        "write me a bash script to rename files",
        "help me debug my c++ program",
        "def fib(n):\n    return n if n < 2 else fib(n - 1)",
        "SELECT * FROM users WHERE id = 1",
        "write a regex for email addresses",
        "explain this code: for (int i = 0; i < 10; i++) { sum += i; }",
        "#include <stdio.h>\nint main() {\n",
        "Write some HTML",
    ],
)
def test_code(text: str, knows: Callable[[str], bool]) -> None:
    assert refusal(text, knows) == CODE


@pytest.mark.parametrize(
    "text",
    [
        "explain quantum mechanics",
        "list all us states",
        "plan a trip to italy",
        "Tell me about Napoleon",
        "give me a haiku",
        "Describe photosynthesis",
    ],
)
def test_the_world_at_large(text: str, knows: Callable[[str], bool]) -> None:
    assert refusal(text, knows) == FACTS


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("does it run mixtral?", "Mixtral"),
        ("Can I run gpt-oss here", "gpt-oss"),
        ("will qwen3-30b-a3b work", "Mixtral"),
        ("is mamba supported", "Mamba"),
        ("which architectures are supported?", "edgellm show"),
        ("can i compute embeddings", "embed"),
        ("can edgellm quantise my F16 file", "edgellm quantize"),
        ("how do I convert a model to gguf", "edgellm convert"),
        ("does it open safetensors", "edgellm convert"),
        ("is IQ2_XXS supported", "IQ2"),
        ("can i save this chat", "/save"),
    ],
)
def test_what_is_newer_than_the_guide(text: str, word: str, knows: Callable[[str], bool]) -> None:
    """It would deny it."""
    answer = refusal(text, knows)
    assert answer in dict(NEWER).values() and word in answer and not unknown_names(answer, known_commands())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "17+25=?",
        "ok",
        "tell me a joke",
        "explain that again",
        "explain in one line",
        "give me an example",
        "show me python code that streams",
        "write a script that loads a model with edgellm",
        "import error",
        "what is a seed",
        "my name is Maria de la Cruz",
        "does qwen3-0.6b fit 8 GB?",
        "model.generate() raises EdgeError;",
        "plan for 8 GB of memory",
    ],
)
def test_what_reaches_the_guide(text: str, knows: Callable[[str], bool]) -> None:
    assert refusal(text, knows) is None


def test_no_held_out_question_is_kept_from_the_guide(knows: Callable[[str], bool]) -> None:
    questions = [*read_questions(ROOT / "scripts/guide/questions.toml"), *read_questions(ROOT / "scripts/guide/development.toml")]
    asked = [text for question in questions for text in (*question.before, question.ask) if question.topic != "refusals"]
    refused = {text for text in asked if refusal(text, knows) not in (None, *dict(NEWER).values())}
    assert len(asked) > 250 and refused <= {"kannst du auch deutsch reden?"}
