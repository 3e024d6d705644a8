"""Thinking between marks at the beginning of an answer, separated while the answer is written."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from edgellm.chat.answer_marks import AnswerMarks, Unwrapper, answer_marks_of
from edgellm.errors import OptionError


class Marks(NamedTuple):
    """The marks around thinking; without an opening mark the answer begins with it. `token`: the one with which the opening mark
    begins; `others`: more control tokens; `answer`: what the answer stands between; `calls`: marks of calls, which end the thinking
    as well."""

    open: str
    close: str
    token: str
    others: tuple[str, ...] = ()
    answer: AnswerMarks | None = None
    calls: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """Control tokens that must be seen in the text."""
        return tuple(filter(None, (self.close, self.token, *self.others, *(self.answer or ()), *self.calls)))


THINK = Marks("<think>", "</think>", "<think>")
BRACKETS = Marks("[THINK]", "[/THINK]", "[THINK]")  # Magistral, Ministral 3
SEED = Marks("<seed:think>", "</seed:think>", "<seed:think>")  # Seed-OSS
CHANNEL = Marks("<|channel>thought", "<channel|>", "<|channel>")  # Gemma 4
INNER = Marks("<|inner_prefix|>", "<|inner_suffix|>", "<|inner_prefix|>", calls=("<|tools_prefix|>",))  # Apertus
COMMAND = Marks("<|START_THINKING|>", "<|END_THINKING|>", "<|START_THINKING|>", calls=("<|START_ACTION|>",))  # Command R7B, A
# Apriel: all that comes before the final response, whether the prompt has begun it or not.
FINAL = Marks("", "[BEGIN FINAL RESPONSE]", "", answer=AnswerMarks("", "[END FINAL RESPONSE]"), calls=("<tool_calls>",))
# gpt-oss: all that comes before the final message.
HARMONY = Marks(
    "<|channel|>analysis", "<|channel|>final<|message|>", "<|channel|>", ("<|start|>", "<|message|>", "<|end|>", "<|constrain|>")
)
_MARKS = (FINAL, SEED, BRACKETS, THINK, CHANNEL, INNER, COMMAND, HARMONY)
# Calls that end thinking between <think> and </think>, by what templates show of them: Kimi, DeepSeek from V3.2 on.
_CALLS = {
    "<|tool_calls_section_begin|>": ("<|tool_calls_section_begin|>",),
    "｜DSML｜": ("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
}
Thinking = Literal["no", "always", "optional"]  # what a template says of its model
# Names that templates give the switch; a bare `thinking` occurs in prose as well, so it counts only where it is tested.
_SWITCH = re.compile(
    r"(?<![.\w])enable_thinking\b(?!\s*=[^=])|\{%-?\s*(?:el)?if\s+(?:not\s+)?thinking\s*-?%\}"
    r"|(?<![\w.])thinking is (?:not )?defined"
)
_COMMAND_SWITCH = re.compile(r"\{%-?\s*(?:if|elif|set)\b[^%]*(?<![\w.'\"])reasoning\b(?!['\"(])")
# A variable of the template's own, as in Nemotron's, which looks for /no_think in messages.
_OWN = re.compile(r"\bset\s+enable_thinking\s*=\s*(?:true|false)\b", re.IGNORECASE)
_SOFT = re.compile(r"""['"]/no_think['"]\s+in\b""")


class Free(NamedTuple):
    """The thinking before an answer's form: whether the prompt has opened the thinking, whether the answer may, tokens of it."""

    inside: bool
    may_open: bool
    budget: int | None
    marks: Marks = THINK
    message: str = ""  # closes thinking whose budget is used up


def marks_of(source: str) -> Marks | None:
    """The marks of thinking in a chat template; None where its model does not think."""
    found = next((marks for marks in _MARKS if marks.close in source), None)
    if found not in (THINK, COMMAND):
        return found
    calls = next((marks for shown, marks in _CALLS.items() if shown in source), ())
    return found._replace(answer=answer_marks_of(source), calls=found.calls + calls)


def thinking_of(source: str) -> Thinking:
    """ "always" or "optional" (by a switch) where a chat template's model thinks, else "no"."""
    if (marks := marks_of(source)) is None:
        return "no"
    if marks.open == COMMAND.open and _COMMAND_SWITCH.search(source):
        return "optional"
    return "optional" if _has_option(source) or _SOFT.search(source) else "always"


def reads_soft_switch(source: str) -> bool:
    """True if a chat template looks for /think and /no_think in messages, and has no option to say so."""
    return _SOFT.search(source) is not None and not _has_option(source)


def _has_option(source: str) -> bool:
    read, own = _SWITCH.search(source), _OWN.search(source)
    return read is not None and not (own and own.start() < read.start())


QUOTES = ("`", '"', "'", "“", "‘", "«")  # before a mark that is quoted
_HAS_NO = "is not possible: this model's chat template has no "


def switch(thinking: Thinking, think: bool | None) -> dict[str, bool]:
    """Options of the template that turn thinking on or off; none for None. Raises OptionError where that is not possible."""
    if think is None:
        return {}
    if think and thinking == "no":
        raise OptionError(_HAS_NO + "<think>", option="think", value=True, advice="leave it out")
    if not think and thinking == "always":
        raise OptionError(_HAS_NO + "switch for its thinking", option="think", value=False, advice="leave it out")
    return dict.fromkeys(("enable_thinking", "thinking", "reasoning"), think) if thinking == "optional" else {}


def opens_thinking(prompt: str, marks: Marks = THINK) -> bool:
    """True if a rendered conversation ends inside the thinking, so that the answer begins with it."""
    return prompt.rstrip().endswith(marks.open)


class ThinkingSplitter:
    """Tells thinking from answer, piece by piece, wherever the text is cut.

    Thinking stands at the beginning, after white space at most; a later opening mark is text of the answer. White space around
    thinking goes.
    """

    def __init__(self, *, inside: bool, marks: Marks = THINK, formed: bool = False, stray: bool = False) -> None:
        """`inside`: the prompt has opened the thinking already; `formed`: the answer follows a grammar; `stray`: a closing mark at
        the end of a line of the text means nothing and goes, as where a budget has closed the thinking. A quoted one stays."""
        self.marks, self.inside = marks, inside
        self._stray = stray and not formed
        self._text = ""  # may still become a stray mark
        self._last = ""  # the last sign before it
        self._part: Literal["start", "thinking", "answer"] = "thinking" if inside else "start"
        self._held = ""  # may still become a marker, or white space that goes
        self._strip = inside  # white space at the beginning of the part goes
        self._answer = Unwrapper(marks.answer, formed=formed)

    @property
    def thinks(self) -> bool:
        """True if the answer is in its thinking now."""
        return self._part == "thinking"

    def push(self, text: str) -> tuple[str, str]:
        """The (thinking, answer) that are certain by now."""
        text, self._held = self._held + text, ""
        if self._part == "start":
            begun, opening = text.lstrip(), self.marks.open
            if opening.startswith(begun[: len(opening)]) and len(begun) < len(opening):
                self._held = text
                return "", ""
            thinks = begun.startswith(opening)
            self._part, self._strip = ("thinking", True) if thinks else ("answer", False)
            text = begun.removeprefix(opening) if thinks else text
        thinking, closed, rest = self._think(text) if self._part == "thinking" else ("", True, text)
        if self._part == "thinking" and closed:
            self._part, self._strip = "answer", True
        return thinking, self._answer.push(self._stripped(self._without_strays(rest))) if closed else ""

    def flush(self) -> tuple[str, str]:
        """The text that was held back, at the end."""
        held, self._held = self._held, ""
        if self._part == "thinking":
            return held.rstrip(), ""
        text, self._text = self._text + held, ""
        if self._stray and self._last not in QUOTES:
            text = text.removeprefix(self.marks.close)
        return "", self._answer.push(self._stripped(text)) + self._answer.flush()

    def _without_strays(self, text: str) -> str:
        """Text without closing marks at the ends of lines, which close nothing there."""
        if not self._stray:
            return text
        close, shown = self.marks.close, ""
        text, self._text = self._text + text, ""
        while (at := text.find(close)) >= 0:
            before, behind = text[:at], text[at + len(close) :]
            if not behind:
                self._text, text = text[at:], before
                break
            goes = behind[0] in "\r\n<" and (shown + before)[-1:] not in QUOTES
            shown, text = shown + before + close * (not goes), behind
        if not self._text:
            keep = next((n for n in range(min(len(close) - 1, len(text)), 0, -1) if text.endswith(close[:n])), 0)
            self._text, text = text[len(text) - keep :], text[: len(text) - keep]
        shown += text
        self._last = shown[-1:] or self._last
        return shown

    def _think(self, text: str) -> tuple[str, bool, str]:
        """Thinking, whether it ends here, and what comes after."""
        ends = (self.marks.close, *self.marks.calls)
        places = [at for end in ends if (at := text.find(end)) >= 0]
        if places:
            at = min(places)
            return self._stripped(text[:at].rstrip()), True, text[at:].removeprefix(self.marks.close)
        keep = max((n for end in ends for n in range(1, len(end)) if text.endswith(end[:n])), default=0)
        shown = self._stripped(text[: len(text) - keep])
        kept = shown.rstrip()
        self._held = shown[len(kept) :] + text[len(text) - keep :]
        return kept, False, ""

    def _stripped(self, text: str) -> str:
        """Without the white space at the part's beginning."""
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text
