"""The guide's corpus: repeatable, true to the command line and the catalogue, and ignorant of the held-out questions."""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterator

import pytest
from places import ROOT

FOLDER = ROOT / "scripts" / "guide"
sys.path.append(str(FOLDER))

from corpus import commands, facts, patterns  # noqa: E402  # the folder of scripts is not a package
from corpus.grammar import expand, expression, normalise, parse  # noqa: E402
from corpus.intents import intents, slots  # noqa: E402
from rubric import appears, read_questions  # noqa: E402
from write_corpus import as_line, conversations, held_out  # noqa: E402

SAMPLE = 3000


@pytest.fixture(scope="module")
def sample() -> list[tuple[str, list[tuple[str, str]]]]:
    return list(itertools.islice(conversations(1), SAMPLE))


def every_answer() -> Iterator[str]:
    for intent in intents().values():
        yield from intent.answers
        for answers in intent.follow.values():
            yield from answers


def test_the_same_seed_writes_the_same_text(sample: list[tuple[str, list[tuple[str, str]]]]) -> None:
    again = [as_line(talk) for talk in itertools.islice(conversations(1), 300)]
    assert again == [as_line(talk) for talk in sample[:300]]
    assert again != [as_line(talk) for talk in itertools.islice(conversations(2), 300)]


def test_no_held_out_question_is_written(sample: list[tuple[str, list[tuple[str, str]]]]) -> None:
    written = {normalise(question) for _, turns in sample for question, _ in turns}
    assert not written & held_out()
    assert len(written) > SAMPLE  # a writer that repeats itself would pass too easily


@pytest.mark.slow  # and of use only to whoever edits the corpus or the questions
def test_no_grammar_can_say_a_held_out_question() -> None:
    """Noise apart: openers and closers are taken off a question, then wrappers, and the rest must fit no pattern."""
    found = [f"{name}: {question}" for question in held_out() for name in sayable(question)]
    assert not found


@pytest.mark.slow
def test_the_check_of_held_out_questions_can_fail() -> None:
    assert "gguf" in sayable("so what is the gguf format please")
    assert "leave_chat" in sayable("how do i leave the chat")
    assert "what_can_you_do" in sayable("thanks what can i ask you")


def sayable(question: str) -> list[str]:
    """Intents that can say a normalised question."""
    found = []
    cores = list(_cores(question))
    inner = {kind: _inner(cores, wrappers) for kind, wrappers in WRAPPERS.items()}
    for intent in intents().values():
        whole = any(_fits(pattern, core) for pattern in intent.questions for core in cores)
        parts = {"concepts": intent.concepts, "actions": intent.actions, "short": intent.short}
        if whole or any(_fits(pattern, core) for kind, texts in parts.items() for pattern in texts for core in inner[kind]):
            found.append(intent.name)
    return found + [pattern for pattern in BARE for core in cores if _fits(pattern, core)]


WRAPPERS = {"concepts": patterns.CONCEPT, "actions": patterns.ACTION, "short": patterns.ELLIPSIS}
EXPRESSIONS: dict[str, re.Pattern[str]] = {}
BARE = (
    *itertools.chain(*patterns.FOLLOW.values()),
    *patterns.REPEAT,
    *patterns.SHORTER,
    *patterns.CODE_AGAIN,
    *patterns.THANKS,
    *patterns.PYTHON_TOO,
    *patterns.MORE_MEMORY,
    *patterns.LESS_MEMORY,
)


def _cores(question: str) -> set[str]:
    """The question, and what is left without an opener, a joiner or a closer."""
    heads = {normalise(words) for words in (*patterns.OPENERS, *patterns.JOINERS)} - {""}
    tails = {normalise(words) for words in patterns.CLOSERS} - {""}
    begun = {question} | {question.removeprefix(head + " ") for head in heads}
    return begun | {core.removesuffix(" " + tail) for core in begun for tail in tails}


def _inner(cores: list[str], wrappers: tuple[str, ...]) -> set[str]:
    """The text in the place of {x} in any wrapper."""
    found = set()
    for wrapper in wrappers:
        form = EXPRESSIONS.setdefault(wrapper, re.compile(_open(wrapper)))
        found |= {match[1] for core in cores if (match := form.fullmatch(core))}
    return found


def _open(wrapper: str) -> str:
    return expression(wrapper.replace("{x}", "anything"), slots()).replace("anything", "(.+?)", 1)


def _fits(pattern: str, text: str) -> bool:
    if pattern not in EXPRESSIONS:
        EXPRESSIONS[pattern] = re.compile(expression(pattern, slots()))
    return EXPRESSIONS[pattern].fullmatch(text) is not None


def test_every_command_that_is_named_exists() -> None:
    from edgellm.cli.app import COMMANDS

    real = set(COMMANDS)
    assert real >= commands.EXISTS, "corpus/commands.py claims commands that the command line does not have"
    for answer in every_answer():
        assert not commands.unknown_names(answer), answer


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert commands.unknown_names("Type `edgellm frobnicate x`.") == ["edgellm frobnicate"]
    assert commands.unknown_names("Type `/shout` or `edgellm chat --loud`.") == ["/shout", "--loud"]
    assert commands.unknown_names("`hf download a/b` then `cat x | edgellm run m` and `./scripts/edgellm chat`") == []


def test_chat_commands_and_options_are_those_of_the_command_line() -> None:
    from typer.main import get_command

    from edgellm.cli.app import program
    from edgellm.cli.chat.slash_commands import COMMANDS

    assert set(commands.CHAT_COMMANDS) == set(COMMANDS)
    group = get_command(program())
    every = {"--help", "-h"}
    for command in (group, *getattr(group, "commands", {}).values()):
        for parameter in command.params:
            every |= {name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")}
    assert every >= commands.OPTIONS


def test_models_are_those_of_the_catalogue_and_fit() -> None:
    for table in (facts.MEMORY, facts.PI):
        for gigabytes, name in table.items():
            assert facts.catalogue()[name].memory_gb <= facts.SYSTEM_SHARE * gigabytes, f"{name} is too big for {gigabytes} GB"
    names = re.compile(r"\b(?:smollm2|gemma3|qwen2\.5|qwen3|llama3\.2|phi3\.5)-[\w.-]*\w")
    for answer in every_answer():
        unknown = [name for name in names.findall(answer) if name not in facts.catalogue() and name not in ("qwen3-30b-a3b",)]
        assert not unknown, answer


def test_texts_are_ascii_and_answers_short(sample: list[tuple[str, list[tuple[str, str]]]]) -> None:
    for system, turns in sample:
        for question, answer in turns:
            assert (system + question + answer).isascii()
            assert question.strip() and len(answer) <= 420
            assert "%{" not in answer and "{" not in question, (question, answer)


def test_grammar() -> None:
    dice = random.Random(0)
    said = {expand("(a|b)[ c] {n}", {"n": ["1", "2 {m}"], "m": ["3"]}, dice) for _ in range(200)}
    assert said == {"a 1", "b 1", "a c 1", "b c 1", "a 2 3", "b 2 3", "a c 2 3", "b c 2 3"}
    assert all(re.fullmatch(expression("(a|b)[ c] {n}", {"n": ["1", "2 {m}"], "m": ["3"]}), text) for text in said)
    for wrong in ("(a", "a)", "[a)", "{a"):
        with pytest.raises(ValueError):
            parse(wrong)


def test_the_rubric() -> None:
    assert appears("no", "no, it is not") and not appears("no", "nothing is known now")
    assert appears("token", "tokens") and not appears("4", "q4_k_m") and appears("4", "4-bit weights")
    assert appears("/exit", "type `/exit`") and appears("<", "run < notes.txt")


def test_there_are_enough_held_out_questions_and_each_can_be_answered() -> None:
    questions = read_questions(FOLDER / "questions.toml")
    assert len(questions) >= 170 and len({normalise(q.ask) for q in questions}) == len(questions)
    answers = list(every_answer())
    hopeless = [q.ask for q in questions if not q.before and not any(q.holds(answer) for answer in answers)]
    assert not hopeless, f"no answer of the corpus satisfies the rubric of these: {hopeless}"
