"""The form that a caller wants of an answer: a JSON schema, one of several texts, a regular expression or a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from edgellm.api.forms import FORMS
from edgellm.api.forms.gbnf import is_gbnf, lark_of
from edgellm.api.forms.schema import as_json, reader_of, schema_of
from edgellm.arguments import as_int, check_flag
from edgellm.chat.families import Mark
from edgellm.chat.schemas import loosened, not_enforced, problem_of
from edgellm.chat.tools import COMPACT
from edgellm.errors import OptionError, SchemaError, shown
from edgellm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # a type alone

    from edgellm.sampling.matcher import TokenTree


@dataclass(frozen=True, slots=True)
class Form:
    """A grammar in llguidance's words, and what an answer of this form stands for in Python."""

    grammar: str
    parse: Callable[[str], Any] | None = None  # Any: what the caller's schema says
    json: bool = False  # it describes JSON
    check: Callable[[str], str | None] | None = None  # what is wrong with an answer, of a schema that is not enforced entirely
    not_enforced: tuple[str, ...] = ()  # keywords of the schema
    indent: int | None = None  # of the JSON that is shown
    names_tokens: bool = False  # it names tokens, which must be looked up in the vocabulary


def find_form(options: Mapping[str, Any], *, stops: bool = False) -> Form | None:
    """The form among the options of a call, None without any. Raises OptionError for several, or one beside texts to stop at, and
    SchemaError for a faulty one."""
    given = [name for name in FORMS if options.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} were given together; an answer has one form.")
    if stops:
        raise OptionError(f"stop would cut an answer short that {given[0]} describes; leave one of them out.")
    value = options[given[0]]
    try:
        if given[0] == "schema":
            form = _schema(value, options)
        else:
            form = {"choices": _choices, "regex": _regex, "grammar": _grammar}[given[0]](value)
    except UnicodeEncodeError as error:
        raise SchemaError(
            f"{given[0]} has the lone surrogate {error.object[error.start]!r}, which no answer can have; leave it out."
        ) from error
    return replace(form, names_tokens=check_grammar(form.grammar, given[0]) and given[0] == "grammar")


def check_grammar(grammar: str, what: str, vocabulary: TokenTree | None = None) -> bool:
    """True if llguidance has more to say of a grammar. Raises SchemaError where it refuses it."""
    from llguidance import LLMatcher

    if vocabulary is None:
        wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    else:
        wrong, message = vocabulary.check(grammar)
        messages = [message] * bool(message)
    if wrong or (messages and what == "schema"):  # a warning says that something is not enforced
        reason = " ".join(line.strip() for line in messages[0].splitlines() if line.strip(" ^"))
        raise SchemaError(f"{what} cannot be enforced: {reason[:300].rstrip('.')}; correct it or say it in other words.")
    return bool(messages)


def json_grammar(schema: object) -> str:
    """The grammar of a JSON schema. Raises SchemaError."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(as_json(schema), overrides=cast("JsonCompileOptions", COMPACT))


def _schema(given: object, options: Mapping[str, Any]) -> Form:
    if isinstance(given, str | bytes):
        raise SchemaError("schema is a text; give the mapping that json.loads makes of it.")
    strict, indent = (
        check_flag("strict", True if options.get("strict") is None else options["strict"]),
        _indent(options.get("indent")),
    )
    schema, parse = schema_of(given), reader_of(given)
    if strict:
        return Form(json_grammar(schema), parse, json=True, indent=indent)
    dropped = not_enforced(schema)
    grammar = json_grammar(loosened(schema))
    return Form(
        grammar, parse, json=True, check=checker(schema, parse) if dropped else None, not_enforced=tuple(dropped), indent=indent
    )


def _indent(asked: object) -> int | None:
    if asked is None:
        return None
    number = as_int(asked)
    if number is None or not 0 <= number <= 16:
        raise OptionError(
            "is not a number of blanks", option="indent", value=asked, advice="give 0 to 16, or None for compact JSON"
        )
    return number


def checker(schema: Mapping[str, Any], parse: Callable[[str], Any]) -> Callable[[str], str | None]:
    """The fault of an answer under a schema; jsonschema says so where it is installed."""

    def check(text: str) -> str | None:
        try:
            value = json.loads(text)
            parse(text)
        except (ValueError, RecursionError) as error:
            return str(error)
        return problem_of(value, schema)

    return check


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
        raise SchemaError(
            "is not a grammar",
            option="grammar",
            value=given,
            advice="give Lark's syntax with a rule called start, or GBNF with one called root",
        )
    return Form(LLMatcher.grammar_from_lark(lark_of(given) if is_gbnf(given) else given))


def marks_in(tokenizer: Tokenizer) -> Mark:
    """How a text stands in a grammar: as the control token that it is, or as text."""

    def mark(text: str) -> str:
        token = tokenizer.token_id(text)
        return f"<[{token}]>" if token is not None and tokenizer.is_control(token) else literal(text)

    return mark


def literal(text: str) -> str:
    """A text in the syntax of Lark."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
