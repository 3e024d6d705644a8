"""Conversations of one turn to twenty: questions by grammar, answers by intent, follow-ups that need what was said before."""
from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import patterns
from .grammar import Slots, expand
from .intents import Intent, favour_first, intents, slots
from .noise import as_typed

SOCIAL, OUTSIDE = "talk", "refusals"
# "And in Python?" after these is answered by those.
IN_PYTHON = {
    "temperature": "py_options", "seed": "py_options", "sampling": "py_options", "deterministic": "py_options",
    "top_k": "py_options", "top_p": "py_options", "min_p": "py_options", "length_option": "py_generate",
    "run_command": "py_generate", "chat_command": "py_chat", "system_prompt": "py_chat", "set_context": "py_load",
    "context": "py_load", "threads": "py_load", "stop_answer": "py_cancel", "tokenize_command": "py_tokenizer",
    "token": "py_tokenizer", "chat_stats": "py_stats", "bench": "py_stats", "own_file": "py_load", "start_model": "py_load",
    "hf_names": "py_load", "what_is_edgellm": "py_start", "commands": "py_start", "py_stream": "py_stream", "py_chat": "py_chat",
    "py_load": "py_load", "chat_set": "py_options", "chat_system": "py_chat", "sinks": "py_load",
}
FITS = ("fit1", "fit2", "fit4", "fit8", "fit16", "fit32")
UNCLEAR = "gibberish_input"
NO_REASON = ("I do not know more about that: I am only a tiny model. The README of edgellm says more.",
             "More I cannot say, since I am so small. Look into the README of edgellm.")


@dataclass(slots=True)
class Talk:
    """A conversation in the making: what was said, and what follow-ups refer to."""

    dice: random.Random
    turns: list[tuple[str, str]] = field(default_factory=list)
    last: Intent | None = None
    name: str = ""
    asked: set[str] = field(default_factory=set)

    def say(self, question: str, answer: str, *, is_question: bool = True) -> None:
        self.turns.append((as_typed(question, self.dice, question=is_question), answer))

    def ask(self, intent: Intent, *, short: bool = False) -> None:
        """One question of an intent and its answer; `short`: as an afterthought, "and q8_0?"."""
        dice = self.dice
        if short and intent.short:
            question = expand(dice.choice(patterns.ELLIPSIS).replace("{x}", dice.choice(intent.short)), slots(), dice)
        else:
            question = self._wrapped(intent.question(_strange_slots(dice), dice), social=intent.topic == SOCIAL)
        self.say(question, self._answer(intent), is_question=intent.topic != SOCIAL or dice.random() < 0.2)
        self.last = intent
        self.asked.add(intent.name)

    def _answer(self, intent: Intent) -> str:
        if intent.name == "my_name" and self.name:
            return self.dice.choice((f"Your name is {self.name}.", f"You are {self.name}, you told me so."))
        said = {answer for _, answer in self.turns}
        new = [answer for answer in intent.answers if answer not in said]
        return favour_first(new if new and intent.name == "joke" else intent.answers, self.dice)

    def _wrapped(self, question: str, *, social: bool) -> str:
        dice = self.dice
        if self.turns and dice.random() < 0.3:
            question = dice.choice(patterns.JOINERS) + question
        elif not social and dice.random() < 0.2:
            question = dice.choice(patterns.OPENERS) + question
        if not social and dice.random() < 0.1:
            question += dice.choice(patterns.CLOSERS)
        return question

    def follow_up(self, kind: str) -> bool:
        """A bare "why?", "how?", "an example?" or "more?"; False where the last answer leaves nothing to add."""
        if self.last is None:
            return False
        answers = self.last.follow.get(kind)
        if not answers and kind == "why" and self.last.topic not in (SOCIAL, OUTSIDE):
            answers = list(NO_REASON)
        if not answers and kind != "why":
            answers = [answer for answer in self.last.answers if answer != self.turns[-1][1]]
        if not answers or answers[0] == self.turns[-1][1]:
            return False
        self.say(expand(self.dice.choice(patterns.FOLLOW[kind]), slots(), self.dice), favour_first(answers, self.dice))
        return True

    def echo(self) -> bool:
        """Ask for the last answer again: whole, in one sentence, or only its command."""
        if not self.turns:
            return False
        said = self.turns[-1][1]
        codes = [code for code in re.findall(r"`[^`]+`", said) if "edgellm" in code or "hf " in code]
        wishes = [(patterns.REPEAT, said), (patterns.SHORTER, re.split(r"(?<=[.!?]) ", said)[0])]
        if codes:
            wishes.append((patterns.CODE_AGAIN, f"{codes[0]}"))
        words, answer = self.dice.choice(wishes)
        self.say(expand(self.dice.choice(words), slots(), self.dice), answer)
        return True

    def elsewhere(self) -> bool:
        """The same thing in Python, or with more or less memory."""
        name = self.last.name if self.last else ""
        if name in FITS:
            up = self.dice.random() < 0.5
            at = min(max(FITS.index(name) + (1 if up else -1), 0), len(FITS) - 1)
            question, target = self.dice.choice(patterns.MORE_MEMORY if up else patterns.LESS_MEMORY), intents()[FITS[at]]
        elif name in IN_PYTHON:
            question, target = self.dice.choice(patterns.PYTHON_TOO), intents()[IN_PYTHON[name]]
        else:
            return False
        self.say(expand(question, slots(), self.dice), self._answer(target))
        self.last = target
        return True

    def introduce(self) -> None:
        """The user tells a name, which must be copied to the answer, and may ask something in the same breath."""
        dice = self.dice
        self.name = dice.choice(slots()["name"]) if dice.random() < 0.4 else _made_up(dice).capitalize()
        name = self.name if dice.random() < 0.7 else self.name.lower()
        text = expand(dice.choice(intents()["name_user"].questions), {**slots(), "name": ["@"]}, dice)
        typed = as_typed(text, dice, question=False).replace("@", name)
        if dice.random() < 0.25:
            intent = _pick(dice, _facts())
            question = as_typed(intent.question(slots(), dice), dice)
            met = dice.choice(("Nice to meet you", "Hello", "Pleased to meet you"))
            self.turns.append((f"{typed.rstrip('.!')}{dice.choice(('. ', ', ', '! '))}{question}",
                               f"{met}, {self.name}! {self._answer(intent)}"))
            self.last = intent
            return
        answer = favour_first((f"Nice to meet you, {self.name}! What would you like to know about edgellm?",
                               f"Hello {self.name}! I am the guide. How can I help?",
                               f"Pleased to meet you, {self.name}! Ask me anything about edgellm."), dice)
        self.turns.append((typed, answer))
        self.last = None


def _strange_slots(dice: random.Random) -> Slots:
    """The slots, now and then with made-up things, people and places: what the guide never heard of it must not answer either."""
    if dice.random() >= 0.12:
        return slots()
    strange = ("thing", "person", "country", "city", "dish", "illness")
    return {**slots(), **{name: [_made_up(dice) for _ in range(3)] for name in strange}}


def _made_up(dice: random.Random) -> str:
    return "".join(dice.choices(patterns.SYLLABLES, k=dice.choice((2, 2, 3))))


def _pick(dice: random.Random, among: list[Intent]) -> Intent:
    return dice.choices(among, [intent.weight for intent in among])[0]


def _of_topic(topic: str) -> list[Intent]:
    return [intent for intent in intents().values() if intent.topic == topic and intent.name != "name_user"]


def _facts() -> list[Intent]:
    return [intent for intent in intents().values() if intent.topic not in (SOCIAL, OUTSIDE)]


def single(talk: Talk) -> None:
    """One question and its answer."""
    share = talk.dice.random()
    among = _facts() if share < 0.72 else _of_topic(OUTSIDE) if share < 0.9 else _of_topic(SOCIAL)
    talk.ask(_pick(talk.dice, among), short=talk.dice.random() < 0.04)


def on_topic(talk: Talk) -> None:
    """Several questions on one topic, with follow-ups, thanks and changes of topic."""
    dice = talk.dice
    wanted = dice.randint(2, 10) if dice.random() < 0.93 else dice.randint(11, 22)
    if dice.random() < 0.15:
        talk.ask(intents()[dice.choice(("greet", "greet", "how_are_you", "good_morning"))])
    talk.ask(_pick(dice, _facts()))
    while len(talk.turns) < wanted:
        _next(talk)
    if dice.random() < 0.15:
        talk.ask(intents()[dice.choice(("thanks", "bye", "bye", "leave_chat"))])


def _next(talk: Talk) -> None:
    dice, last = talk.dice, talk.last
    topic = last.topic if last and last.topic not in (SOCIAL, OUTSIDE) else dice.choice(_facts()).topic
    steps: list[tuple[float, Callable[[], object]]] = [
        (30, lambda: talk.ask(_pick(dice, _unasked(talk, topic)))),
        (9, lambda: talk.ask(_pick(dice, _unasked(talk, topic)), short=True)),
        (12, lambda: talk.follow_up(dice.choice(("why", "how", "eg", "more", "more")))),
        (4, talk.echo),
        (4, talk.elsewhere),
        (6, lambda: _thank(talk)),
        (5, lambda: talk.ask(_pick(dice, _of_topic(SOCIAL)))),
        (5, lambda: talk.ask(_pick(dice, _of_topic(OUTSIDE)))),
        (25, lambda: talk.ask(_pick(dice, _facts()))),
    ]
    dice.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()


def _unasked(talk: Talk, topic: str) -> list[Intent]:
    among = _of_topic(topic)
    return [intent for intent in among if intent.name not in talk.asked] or among


def _thank(talk: Talk) -> None:
    intent = intents()["thanks" if talk.dice.random() < 0.7 else "ack"]
    words = talk.dice.choice(patterns.THANKS) if intent.name == "thanks" else intent.question(slots(), talk.dice)
    talk.say(expand(words, slots(), talk.dice), favour_first(intent.answers, talk.dice), is_question=False)


def small_talk(talk: Talk) -> None:
    """Greetings, names, jokes, feelings, and now and then a question about edgellm or the world."""
    dice = talk.dice
    wanted = dice.randint(2, 10)
    if dice.random() < 0.5:
        talk.ask(intents()["greet"])
    if dice.random() < 0.45:
        talk.introduce()
    while len(talk.turns) < wanted:
        share = dice.random()
        if share < 0.5:
            talk.ask(_pick(dice, _of_topic(SOCIAL)))
        elif share < 0.62:
            talk.ask(_pick(dice, _of_topic("guide")))
        elif share < 0.72:
            talk.ask(intents()["my_name" if share < 0.66 else "joke"])
        elif share < 0.78:
            talk.follow_up(dice.choice(("why", "more", "how")))
        elif share < 0.92:
            talk.ask(_pick(dice, _facts()))
        else:
            talk.ask(_pick(dice, _of_topic(OUTSIDE)))


def outside(talk: Talk) -> None:
    """Questions that the guide refuses, and how the user gets to a model that can answer them."""
    dice = talk.dice
    for _ in range(dice.randint(1, 4)):
        talk.ask(_pick(dice, _of_topic(OUTSIDE)))
    talk.follow_up(dice.choice(("why", "how", "more")))
    talk.ask(intents()[dice.choice(("why_so_simple", "get_model", "what_can_you_do", "which_model", "replace_you", "who_are_you"))])


def unclear(talk: Talk) -> None:
    """A follow-up with nothing before it, or a name and nothing else."""
    dice = talk.dice
    if dice.random() < 0.4:
        talk.introduce()
        for _ in range(dice.randint(0, 2)):
            talk.ask(_pick(dice, _facts()))
        talk.ask(intents()["my_name"])
        return
    words = dice.choice((*patterns.FOLLOW["why"], *patterns.FOLLOW["eg"], *patterns.REPEAT, *patterns.FOLLOW["how"]))
    talk.say(expand(words, slots(), dice), favour_first(intents()[UNCLEAR].answers, dice))
    talk.ask(_pick(dice, _facts()))


KINDS: tuple[tuple[float, Callable[[Talk], None]], ...] = (
    (0.60, single), (0.24, on_topic), (0.07, small_talk), (0.03, outside), (0.06, unclear),
)


def conversation(dice: random.Random) -> tuple[str, list[tuple[str, str]]]:
    """A system prompt ("" for none) and the turns (question, answer) of one conversation."""
    talk = Talk(dice)
    dice.choices([kind for _, kind in KINDS], [share for share, _ in KINDS])[0](talk)
    return (dice.choice(patterns.SYSTEM) if dice.random() < 0.04 else ""), talk.turns
