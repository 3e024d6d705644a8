"""The form that a caller wants of an answer: a JSON schema, one of several texts, a regular expression or a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from edgellm.api.schema import as_json, is_pydantic, schema_of
from edgellm.chat.families import Mark
from edgellm.chat.tools import JSON_OPTIONS
from edgellm.errors import OptionError, SchemaError, shown
from edgellm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from llguidance._lib import JsonCompileOptions  # a type alone

FORMS = ("schema", "choices", "regex", "grammar")


@dataclass(frozen=True, slots=True)
class Form:
    """A grammar in llguidance's words, and what an answer of this form stands for in Python."""

    grammar: str
    parse: Callable[[str], Any] | None = None  # Any: what the caller's schema says
    json: bool = False  # it describes JSON
    names_tokens: bool = False  # it names tokens, which only the vocabulary can tell whether they exist


def find_form(options: Mapping[str, Any], *, stops: bool = False, bans: bool = False) -> Form | None:
    """The form among the options of a call, None without any. Raises OptionError for several, or one beside texts to stop at or to
    ban, and SchemaError for a faulty one."""
    given = [name for name in FORMS if options.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} were given together; an answer has one form.")
    if stops:
        raise OptionError(f"stop would cut an answer short that {given[0]} describes; leave one of them out.")
    if bans:
        raise OptionError(f"ban and {given[0]} were given together; {given[0]} alone says what the answer may contain.")
    value = options[given[0]]
    try:
        form = {"schema": _schema, "choices": _choices, "regex": _regex, "grammar": _grammar}[given[0]](value)
    except UnicodeEncodeError as error:
        raise SchemaError(
            f"{given[0]} has the lone surrogate {error.object[error.start]!r}, which no answer can have; leave it out."
        ) from error
    return replace(form, names_tokens=check_grammar(form.grammar, given[0]) and given[0] == "grammar")


def check_grammar(grammar: str, what: str, vocabulary: LLTokenizer | None = None) -> bool:
    """True if llguidance has more to say of a grammar. Raises SchemaError where it refuses it."""
    from llguidance import LLMatcher

    wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, vocabulary)
    if wrong or (messages and what == "schema"):  # a warning says that something is not enforced
        reason = " ".join(line.strip() for line in messages[0].splitlines() if line.strip(" ^"))
        raise SchemaError(f"{what} cannot be enforced: {reason[:300].rstrip('.')}; correct it or say it in other words.")
    return bool(messages)


def json_grammar(schema: object) -> str:
    """The grammar of a JSON schema. Raises SchemaError."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(as_json(schema), overrides=cast("JsonCompileOptions", JSON_OPTIONS))


def _schema(given: object) -> Form:
    if isinstance(given, str | bytes):
        raise SchemaError("schema is a text; give the mapping that json.loads makes of it.")
    parse: Callable[[str], Any] = json.loads
    if is_pydantic(given):
        parse = given.model_validate_json  # type: ignore[attr-defined]  # is_pydantic has looked
    return Form(json_grammar(schema_of(given)), parse, json=True)


def _choices(given: object) -> Form:
    from llguidance import LLMatcher

    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise SchemaError("is not a list of texts", option="choices", value=given, advice='give e.g. ["yes", "no"]')
    for text in given:
        if not isinstance(text, str) or not text:
            raise SchemaError(f"choices has {shown(text)}; give texts of at least one character.")
    return Form(LLMatcher.grammar_from_lark("start: CHOICE\nCHOICE: " + " | ".join(map(literal, given))))  # one expression


def _regex(given: object) -> Form:
    from llguidance import LLMatcher, regex_to_lark

    if not isinstance(given, str) or not given:
        raise SchemaError("is not a regular expression", option="regex", value=given, advice="give a text")
    return Form(LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(given, 'dws')}/"))  # \d, \w and \s are ASCII's


def _grammar(given: object) -> Form:
    from llguidance import LLMatcher

    if not isinstance(given, str) or not given.strip():
        raise SchemaError("is not a grammar", option="grammar", value=given, advice="give Lark's syntax with a rule called start")
    return Form(LLMatcher.grammar_from_lark(given))


def marks_in(tokenizer: Tokenizer) -> Mark:
    """How a text stands in a grammar: as the control token that it is, or as text."""

    def mark(text: str) -> str:
        token = tokenizer.token_id(text)
        return f"<[{token}]>" if token is not None and tokenizer.is_control(token) else literal(text)

    return mark


def literal(text: str) -> str:
    """A text in the syntax of Lark."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
