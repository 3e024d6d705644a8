"""Checks of a model file's tokenizer and chat templates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgellm.chat import ChatTemplate, shape_of, template_variants
from edgellm.chat.families import unknown_mark
from edgellm.errors import EdgeError, NoTokenizer
from edgellm.formats.gguf import GGUFFile
from edgellm.tokenizer import Tokenizer, build_tokenizer
from edgellm.tokenizer.byte_pairs import BYTE_OF_LETTER
from edgellm.tokenizer.rwkv import unescaped
from edgellm.tokenizer.spm import BYTE_TEXTS
from edgellm.tokenizer.vocabulary import PREFIX, TokenType

Status = Literal["ok", "warning", "error", "skipped"]
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "  two  spaces,\ttabs\n\nand lines\r\n",
    "def f(x):\n    return x ** 2  # 3\n",
    "naïve café, Straße, ñandú",
    "Привет, мир! Γειά σου",
    "你好，世界。こんにちは 안녕하세요",
    "שלום مرحبا नमस्ते สวัสดี",
    "😀👍🏽 ∑∞≠ €",
)
QUESTION, RULE, TOOL = "What is the tallest mountain?", "You answer in one sentence.", "get_height_of_mountain"
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "The height of a mountain.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string", "description": "Its name."}},
                "required": ["name"],
            },
        },
    },
)
USER, SYSTEM = {"role": "user", "content": QUESTION}, {"role": "system", "content": RULE}
ANSWER = {"role": "assistant", "content": "Mount Everest."}
CONTROL_LOOKING = re.compile(r"<\|[\w.-]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]")
RERANK = "rerank"  # of rerankers: a form for a query and a document, in no template language
Conversation = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`check`: what was looked at; `status`: "skipped" where there was nothing to look at; `text`: what was found, what to do."""

    check: str
    status: Status
    text: str


def tokenizer_findings(gguf: GGUFFile) -> Iterator[Diagnosis]:
    """Checks that it can be built, special ids, byte tokens, and texts there and back."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tokenizer = build_tokenizer(gguf.metadata, file=gguf.path)
            tokenizer.prepare()
    except NoTokenizer:
        yield Diagnosis("tokenizer", "skipped", "the file carries none; it takes token ids only")
        return
    except EdgeError as error:
        yield Diagnosis("tokenizer", "error", _short(str(error), gguf))
        return
    found = [Diagnosis("tokenizer", "warning", _short(str(one.message), gguf)) for one in caught]
    kind = str(gguf.metadata.get(PREFIX + "model"))
    found += [*_special(tokenizer), *_bytes(tokenizer, kind)]
    try:
        found += _round_trips(tokenizer, kind)
    except EdgeError as error:  # a text that no token stands for
        found.append(Diagnosis("tokenizer", "warning", _short(str(error), gguf)))
    yield from found
    if not found:
        ends = ", ".join(repr(tokenizer.token_text(token)) for token in sorted(tokenizer.eog_ids)[:4])
        yield Diagnosis(
            "tokenizer",
            "ok",
            f"{kind}, {tokenizer.vocab_size} tokens; answers end with {ends or 'nothing'}; texts come back as they were",
        )


def _special(tokenizer: Tokenizer) -> Iterator[Diagnosis]:
    if not tokenizer.eog_ids:
        yield Diagnosis("tokenizer", "warning", "no token ends an answer (tokenizer.ggml.eos_token_id): answers run to their limit")
    named = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    for name, token in named.items():
        if token is not None and tokenizer.token_type(token) in (TokenType.NORMAL, TokenType.BYTE, TokenType.UNUSED):
            text = f"the {name} token {token} ({tokenizer.token_text(token)!r}) is not marked as a control token"
            yield Diagnosis("tokenizer", "warning", f"{text}: other programs may take it for text")
    twice = len(tokenizer.vocabulary.texts.shadowed)
    if twice:
        yield Diagnosis("tokenizer", "warning", f"{twice} tokens have the text of another one, and can never be used")


def _bytes(tokenizer: Tokenizer, kind: str) -> Iterator[Diagnosis]:
    if kind == "bert":
        return
    if kind == "rwkv":
        single = {unescaped(text) for text in tokenizer.vocabulary.texts}
        missing = [f"{byte}" for byte in range(256) if bytes([byte]) not in single]
    else:
        missing = _missing_texts(tokenizer, kind)
    if missing:
        yield Diagnosis("tokenizer", "warning", f"{len(missing)} of 256 byte tokens are missing: some characters cannot be written")


def _missing_texts(tokenizer: Tokenizer, kind: str) -> list[str]:
    texts = BYTE_TEXTS if kind == "llama" or tokenizer.token_id("<0x0A>") is not None else BYTE_OF_LETTER
    return [text for text in texts if tokenizer.token_id(text) is None]


def _round_trips(tokenizer: Tokenizer, kind: str) -> Iterator[Diagnosis]:
    if kind == "bert":  # lower-cases and cuts accents: nothing comes back
        return
    for index, text in enumerate(TEXTS):
        ids = tokenizer.encode(text, add_special=False)
        if (back := tokenizer.decode(ids)) != text:
            status = "error" if index == 0 else "warning"
            yield Diagnosis("tokenizer", status, f"{text!r} comes back as {back!r}")  # type: ignore[arg-type]  # one of both


def template_findings(gguf: GGUFFile) -> Iterator[Diagnosis]:
    """Checks that each template renders: a question, a conversation, with a system message, with tools."""
    found = template_variants(gguf.metadata, file=gguf.path)
    variants = {name: source for name, source in found.items() if name != RERANK}
    if not variants:
        yield Diagnosis("template", "skipped", "the file carries no chat template")
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            tokenizer: Tokenizer | None = build_tokenizer(gguf.metadata, file=gguf.path)
    except EdgeError:
        tokenizer = None
    for name, source in variants.items():
        yield _template(name, source, tokenizer)


def _template(name: str, source: str, tokenizer: Tokenizer | None) -> Diagnosis:
    bos, eos = (
        "" if tokenizer is None or token is None else tokenizer.token_text(token)
        for token in ((tokenizer.bos_id, tokenizer.eos_id) if tokenizer is not None else (None, None))
    )
    template = ChatTemplate(source, bos=bos, eos=eos, name=f"the template {name!r}")
    text, problem = _rendered(template, [USER])
    if problem:
        return Diagnosis("template", "error", problem)
    notes = [] if QUESTION in text else [f"{name!r} leaves out what the user says"]
    notes += [f"{name!r} writes {token}, which is not a token of the vocabulary" for token in _strange(text, tokenizer)]
    if problem := _rendered(template, [USER, ANSWER, USER])[1]:
        notes.append(problem)
    text, problem = _rendered(template, [SYSTEM, USER])
    takes_system = not problem and RULE in text
    text, problem = _with_tools(template)
    if problem:
        notes.append(f"with tools: {problem}")
    if text and (mark := unknown_mark(source)):
        notes.append(f"{name!r} has calls begin with {mark}, a format that is not supported")
    knows = [word for word, does in (("system messages", takes_system), ("tools", TOOL in text)) if does]
    if notes:
        return Diagnosis("template", "warning", "; ".join(notes))
    return Diagnosis("template", "ok", f"{name!r} renders; it takes {' and '.join(knows) or 'no system messages and no tools'}")


def _rendered(template: ChatTemplate, messages: Conversation, **options: Any) -> tuple[str, str]:
    """The text, or what went wrong."""
    try:
        return template.render(messages, **options).text, ""
    except EdgeError as error:
        return "", str(error)


def _with_tools(template: ChatTemplate) -> tuple[str, str]:
    """The text of a question with tools, as the template takes them, or the error; neither where it takes none."""
    try:
        shape = shape_of(template)
        return (shape.render([USER], TOOLS).text, "") if shape.tools else ("", "")
    except EdgeError as error:
        return "", str(error)


def _strange(text: str, tokenizer: Tokenizer | None) -> list[str]:
    if tokenizer is None:
        return []
    return sorted({token for token in CONTROL_LOOKING.findall(text) if tokenizer.token_id(token) is None})


def _short(text: str, gguf: GGUFFile) -> str:
    return text.removeprefix(f"{gguf.path}: ")
