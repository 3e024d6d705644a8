"""Helpers for tests of tool calls: formats by name, templates, answers taken apart, and what makes a model write calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from edgellm.api.forms.call_grammars import CallGrammars
from edgellm.api.tools import Toolbox
from edgellm.chat.families import FORMATS, CallSplitter, Format
from edgellm.chat.families._format import literal
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.tools import Tool, ToolCall
from edgellm.sampling import Processor
from edgellm.sampling.channels import ChannelConstraint, Channels, ChannelTokens
from edgellm.sampling.matcher import TokenTree, token_tree
from edgellm.sampling.pieces import Pieces
from edgellm.tokenizer import Tokenizer

BY_NAME = {format.name: format for format in FORMATS}
TOOLS = [
    Tool(
        "weather",
        "The weather of a city",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
    Tool(
        "note",
        "",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "urgent": {"type": "boolean"},
            },
            "required": ["text"],
        },
    ),
]
TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}{% endfor %}"""
MARKS = {
    "hermes": "<tool_call>",
    "qwen3-coder": "<tool_call> <function=",
    "seed": "<seed:tool_call> <function=",
    "minimax": "<minimax:tool_call>",
    "glm": "<tool_call> <arg_key>",
    "glm-4.7": "<tool_call> <arg_key></arg_key><arg_value>",
    "llama3": "Environment: ipython",
    "mistral": "[TOOL_CALLS]",
    "mistral-named": "[TOOL_CALLS] [ARGS]",
    "granite": "<|tool_call|>",
    "lfm2": "<|tool_list_start|>",
    "pythonic": "[func_name1(",
    "gemma": "<|tool_call>",
    "functiongemma": "<start_function_call>",
    "kimi": "<|tool_calls_section_begin|>",
    "nemotron": "<TOOLCALL>",
    "hunyuan": "<tool_calls>",
    "phi": "<|/tool_call|>",
    "xlam": 'xLAM {"name": "tool_call_name", "arguments": 1} tool_call.function | tojson',
    "apertus": "<|tools_prefix|>",
    "functionary-v3.2": ">>>all",
    "gigachat-3": "function call<|role_sep|>",
    "gigachat-3.1": "<|role_sep|><|function_call|>",
    "functionary": '<function=example_function_name>{"a": "b"}</function>',
    "internlm": "<|action_start|><|plugin|>",
    "command": "<|START_ACTION|>",
    "command-r": "Write \\'Action:\\' followed by a json-formatted list of actions",
    "deepseek-v3": "<｜tool▁calls▁begin｜> ```json",
    "deepseek-v3.1": "<｜tool▁calls▁begin｜>",
    "deepseek-v3.2": "<｜DSML｜function_calls>",
    "deepseek-v4": "<｜DSML｜tool_calls>",
    "harmony": "<|channel|> functions",
}


def dsml(text: str) -> str:
    """A text with DeepSeek's mark for each @."""
    return text.replace("@", "｜DSML｜")


def template(mark: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATE + "{# " + mark + " #}")


def split(name: str, text: str, size: int, tools: Sequence[Tool] = TOOLS) -> tuple[str, list[ToolCall]]:
    """The text and the calls of an answer that comes in pieces of `size` letters."""
    splitter = CallSplitter(BY_NAME[name], tools)
    shown, calls = "", list[ToolCall]()
    for at in range(0, len(text), size):
        more, found = splitter.push(text[at : at + size])
        shown, calls = shown + more, calls + found
    more, found = splitter.flush()
    return shown + more, calls + found


class Begins:
    """A processor that makes an answer begin with some tokens, and favours others, which end texts."""

    def __init__(self, tokens: list[int], ends: Sequence[int] = ()) -> None:
        self._tokens, self._ends = tokens, list(ends)

    def __call__(self, ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self._tokens:
            logits[self._tokens.pop(0)] += 1000
        logits[self._ends] += 5
        return logits


def tag_ends(tokens: Tokenizer, tag: str, closer: str | None = None) -> Processor:
    """A processor that goes on with a tag that has begun, which chance alone would hardly write, and closes a block of calls."""
    parts = [token for letter in tag for token in tokens.encode_continuation(letter)]
    begins = [b"".join(map(tokens.piece, parts[:n])) for n in range(len(parts))]
    last = tokens.token_id(closer) if closer is not None else None

    def favour(ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        text = b"".join(tokens.piece(int(token)) for token in ids[-len(parts) :])
        begun = max(n for n, begin in enumerate(begins) if text.endswith(begin))
        logits[parts[begun]] += 30 if begun else 5
        if last is not None:
            logits[last] += 30
        return logits

    return favour


@cache
def _byte_tree() -> TokenTree:
    return token_tree([*(bytes([each]) for each in range(256)), b""], [256], [], lambda text: [*text.encode()])


class _Plain:
    """A tokenizer without control tokens."""

    def token_id(self, text: str) -> int | None:
        return None

    def is_control(self, token: int) -> bool:
        return False


def accepts(format: Format, tools: Sequence[Tool], text: str) -> bool:
    """True if a model that writes `text` byte by byte is free to, and may end there."""
    tree, n_vocab = _byte_tree(), 257
    box = Toolbox(tuple(tools), {}, format)
    calls = CallGrammars(box, box.grammars(literal), lambda: tree, n_vocab, _Plain())  # type: ignore[arg-type]  # all it needs
    pieces = [bytes([each]) for each in range(256)] + [b""]
    constraint = ChannelConstraint(Channels(ChannelTokens(Pieces(pieces)), None, calls))
    for token in [*text.encode(), 256]:
        mask = constraint.mask()
        if mask is not None and not mask[token // 32] >> (token % 32) & 1:
            return False
        if token != 256:
            constraint.accept(token)
    return True
