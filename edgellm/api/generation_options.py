"""The options of one generation, parsed and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast  # Any: a schema may be many things

from edgellm.api.context_policy import ContextPolicy, check_policy
from edgellm.api.forms import FORMS
from edgellm.api.stop_text import StopText, as_texts
from edgellm.arguments import check_flag, check_progress
from edgellm.errors import OptionError
from edgellm.loading.adapters import Asked
from edgellm.options.choices import MAX_TRIES
from edgellm.options.generation import LOGPROBS, MAX_TOKENS, UNLIMITED
from edgellm.options.table import known_as
from edgellm.sampling import Processor, SamplingKeywords

if TYPE_CHECKING:
    from edgellm.api.forms.form import Form
    from edgellm.api.records import Generation

RETRY_TEMPERATURE = 0.7  # of a greedy answer that was wrong
Priority = Literal["foreground", "background"]
PRIORITIES: tuple[Priority, ...] = ("foreground", "background")
MaxTokens = int | None | Literal["context", "unlimited"]
PromptProgress = Callable[[int, int], None]  # (tokens of the prompt that were read, all of them)


class AnyFormKeywords(SamplingKeywords, total=False):
    """The options of `generate`, `stream` and `chat` but `schema`, which has a type of its own in them."""

    max_tokens: MaxTokens  # "context" or None (default): as many as the context holds; "unlimited": no limit
    stop: str | Iterable[str] | None  # texts that end the answer and are not part of it
    processors: Sequence[Processor]  # functions (ids (n,), logits (n_vocab,)) -> logits, called before all else
    progress: PromptProgress | None  # called before each step of a prompt, in the thread that asks for the first piece
    context_policy: ContextPolicy | None  # what happens when the context is full; None: as the session or model was opened
    strict: bool | None  # False (None: for tools): keywords of schemas that cannot be enforced are checked afterwards
    indent: int | None  # blanks by which JSON of `schema` is indented; None: compact
    choices: Sequence[str] | None  # the answer is one of these texts
    regex: str | None  # the answer matches this regular expression, from end to end
    grammar: str | None  # the answer is a `start` of this grammar in Lark's syntax, or a `root` in GBNF
    ban: str | Iterable[str] | None  # texts that the answer does not contain, its thinking neither
    echo: bool  # log probabilities of the prompt as well: `result.prompt_logprobs`
    logprobs: int | None  # log probabilities of each token, and of so many alternatives
    stop_loops: bool | None  # end answers that repeat themselves; None: in `chat` alone
    # Guess tokens, which brings the same answer sooner: "ngram" from what was said before, else by a small model (path or name).
    draft: str | os.PathLike[str] | None
    adapters: Asked | None  # those of `load` that the answer uses, as (path, scale); None: as the session or model has them
    priority: Priority | None  # "background" gives way to all that is in the foreground; None: as the session was opened


class GenerationKeywords(AnyFormKeywords, total=False):
    """The options of `generate`, `stream` and `chat`; the sampling options are described in `SamplingOptions`."""

    schema: Any  # the answer is JSON of this schema: a mapping, Pydantic model, TypedDict, ...


OURS = frozenset(GenerationKeywords.__annotations__) - frozenset(SamplingKeywords.__annotations__)


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """The options of one generation."""

    max_tokens: int | None  # None: no limit
    stops: StopText | None
    processors: Sequence[Processor]
    sampling: SamplingKeywords
    progress: PromptProgress | None
    context_policy: ContextPolicy | None = None
    form: Form | None = None
    logprobs: int | None = None
    stop_loops: bool = False
    draft: str | None = None
    priority: Priority | None = None
    adapters: Asked | None = None
    bans: tuple[str, ...] = ()
    echo: bool = False
    turn_ends: StopText | None = None  # texts that end the answer in any channel, where no token does


def generation_part(options: GenerationKeywords, keywords: type[GenerationKeywords]) -> GenerationKeywords:
    """The options that every generation has, of those of a call that takes more."""
    others = keywords.__annotations__.keys() - GenerationKeywords.__annotations__.keys()
    return {name: value for name, value in options.items() if name not in others}  # type: ignore[return-value]  # a part of it


def parse(
    options: GenerationKeywords, *, context: int, more_stops: Sequence[str] = (), stop_loops: bool = False
) -> GenerationOptions:
    """Sort out `options`; `more_stops` end a turn, and `stop_loops` stands for None.

    Raises OptionError, SchemaError, but leaves sampling options to the sampler.
    """
    given = as_texts(options.get("stop"))
    bans = as_texts(options.get("ban"), "ban")
    form = _form(options, stops=bool(given))
    turn_ends = StopText(more_stops) if more_stops and not form else None  # in a form they would be part of a text
    sampling = {name: value for name, value in options.items() if name not in OURS}
    _check_names(sampling)
    policy, loops = options.get("context_policy"), options.get("stop_loops")
    return GenerationOptions(
        _limit(options.get("max_tokens", "context"), context),
        StopText(given) if given else None,
        options.get("processors", ()),
        cast(SamplingKeywords, sampling),
        check_progress(options.get("progress"), "(done, total) tokens"),
        None if policy is None else check_policy(policy),
        form,
        LOGPROBS.number(options.get("logprobs")),
        stop_loops if loops is None else check_flag("stop_loops", loops),
        _draft(options.get("draft")),
        None if (priority := options.get("priority")) is None else check_priority(priority),
        options.get("adapters"),
        bans,
        check_flag("echo", options.get("echo", False)),
        turn_ends,
    )


def _form(options: GenerationKeywords, *, stops: bool) -> Form | None:
    if all(options.get(name) is None for name in FORMS):
        return None
    from edgellm.api.forms.form import find_form  # with the readers of schemas and the formats of calls

    return find_form(options, stops=stops)


def check_priority(asked: object) -> Priority:
    """One of the priorities. Raises OptionError."""
    found = next((each for each in PRIORITIES if isinstance(asked, str) and each == asked), None)
    if found is None:
        raise OptionError("does not exist", option="priority", value=asked, advice='choose "foreground" or "background"')
    return found


def _check_names(sampling: Iterable[str]) -> None:
    """Raises OptionError for a name that is no option, with those that are like it."""
    wrong = next((name for name in sampling if name not in SamplingKeywords.__annotations__), None)
    if wrong is not None:
        import difflib  # which nobody else needs

        if wrong == "n":
            raise OptionError("n is not an option of a stream, which is one answer; generate and chat have it.")
        if (row := known_as(wrong)) is not None:
            where = "an option of load" if row.part == "loading" else "an option of chat" if row.part == "chat" else "the name here"
            raise OptionError(f"{wrong} is not an option of generation; {row.name} is {where}.")
        known = sorted(GenerationKeywords.__annotations__)
        near = difflib.get_close_matches(wrong, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
        raise OptionError(f"{wrong} is not an option of generation; {hint}")


def _draft(asked: object) -> str | None:
    if asked is None:
        return None
    if not isinstance(asked, str | os.PathLike) or not os.fspath(asked) or not isinstance(os.fspath(asked), str):
        raise OptionError(option="draft", value=asked, advice='give "ngram", the path or name of a small model, or None')
    return os.fspath(asked)


def _limit(max_tokens: object, context: int) -> int | None:
    if max_tokens is None or (isinstance(max_tokens, str) and max_tokens == "context"):
        return context
    if isinstance(max_tokens, str) and max_tokens == UNLIMITED:
        return None
    return MAX_TOKENS.number(max_tokens)


Keywords = TypeVar("Keywords", bound=GenerationKeywords)


class Tries(Generic[Keywords]):
    """Another answer where one does not fit a schema that no grammar enforces entirely, for a few times."""

    def __init__(self, options: Keywords) -> None:
        self.options, self._left = options, MAX_TRIES - 1

    def again(self, answer: Generation) -> bool:
        """Prepare the options of the next try; False where there is none."""
        if self._left == 0 or answer.problem is None:
            return False
        self._left -= 1
        other = {"seed": answer.seed + 1, **({"temperature": RETRY_TEMPERATURE} if self.options.get("temperature") == 0 else {})}
        self.options = cast(Keywords, {**self.options, **other})
        return True
