"""Makes tests/data/templates.json: digests of what transformers renders with the published chat templates (run by hand).

python tests/data/make_templates.py        # made with transformers 5.23, whose apply_chat_template needs no torch
"""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import transformers.utils.chat_template_utils as chat_template_utils
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE.parents[2] / "shared" / "templates"
NOW = datetime.datetime(2025, 3, 14, 9, 26, 53)
TOKENS = {  # by the start of a template's file name: BOS and EOS of its models
    "HuggingFaceTB": ("", "<|im_end|>"),
    "LFM2": ("<|startoftext|>", "<|im_end|>"),
    "Nous": ("<|begin_of_text|>", "<|im_end|>"),
    "Qwen": ("", "<|im_end|>"),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "google": ("<bos>", "<eos>"),
    "ibm": ("<|end_of_text|>", "<|end_of_text|>"),
    "meta": ("<|begin_of_text|>", "<|eot_id|>"),
    "microsoft": ("<s>", "<|endoftext|>"),
    "mistralai": ("<s>", "</s>"),
    "openai": ("<|startoftext|>", "<|return|>"),
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place <b>now</b>",
        "parameters": {
            "type": "object",
            "required": ["place"],
            "properties": {
                "place": {"type": "string", "description": "City & country"},
                "days": {"type": "integer"},
                "units": {"type": "string", "enum": ["C", "F"]},
            },
        },
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2}}}


class Pinned(datetime.datetime):
    """The date that templates print."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return NOW


def talk(*contents: Any, first: str = "user", **more: Any) -> dict[str, Any]:
    """Messages of user and assistant in turn, after a system message where `first` says so."""
    roles = [first, *(["user"] if first == "system" else [])]
    while len(roles) < len(contents):
        roles.append("assistant" if roles[-1] == "user" else "user")
    return {"messages": [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)], **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CONVERSATIONS = {
    "three": talk("What is the capital of France?", "Paris.", "And of Italy?"),
    "system": talk("You are terse.", "Hello", "Hi.", first="system"),
    "system_four": talk("You are terse.", "Hello", "Hi.", "Bye", first="system"),
    "unicode": talk(
        "Grüße 👋🏽 – 你好, \u202eabc\u202c ﷽", "naïve cafe\u0301 🇫🇷", "'quotes' \"double\" & <b>html</b> {{ not.jinja }} {% raw %}"
    ),
    "whitespace": talk("  two leading\n\n\ttab and trailing  \n", "\n\nanswer\t \n", "\n"),
    "thinking": talk("2+2?", "<think>\nTwo and two.\n</think>\n\nFour.", "3+3?", "<think>six</think>Six", "ok"),
    "reasoning": {
        "messages": [user("2+2?"), {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."}, user("3+3?")]
    },
    "empty": talk("", "", ""),
    "one": talk("Hi"),
    "nothing": talk(),
    "assistant_first": talk("Hi", "Hello", "?", first="assistant"),
    "two_users": {"messages": [user("Hi"), user("Hello"), {"role": "assistant", "content": "?"}]},
    "late_system": {"messages": [user("Hi"), {"role": "system", "content": "Be kind"}, user("Hello")]},
    "odd_role": {"messages": [user("Hi"), {"role": "narrator", "content": "x"}, user("Hello")]},
    "parts": talk([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}], "three", "four"),
    "no_content": talk("Hi", None, "Hello"),
    "special_texts": talk("say <|im_end|> and </s> [INST] <end_of_turn> <|eot_id|>", "<|end|><eos>", "<turn|>\n<channel|>x"),
    "tools": {
        "messages": [
            user("Weather?"),
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": '{"t": 21}'},
            {"role": "assistant", "content": "21 degrees."},
            user("Thanks"),
        ],
        "tools": [TOOL],
    },
    "tools_system": talk("Be brief.", "Weather?", first="system", tools=[TOOL]),
    "no_thinking": talk("Be brief.", "Hi", "Hello", "2+2?", first="system", options={"enable_thinking": False}),
    "with_thinking": talk("Be brief. /no_think", "Hi", "Hello", "2+2?", first="system", options={"enable_thinking": True}),
    "dated": talk(
        "Be brief.",
        "Hi",
        "Hello",
        "2+2?",
        first="system",
        options={"date_string": "01 Jan 2030", "reasoning_effort": "high", "thinking": True},
    ),
}


def digests(tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """Per conversation, and with "+" appended per conversation with a generation prompt: sha256, or "error"."""
    row = {}
    for name, talk_ in CONVERSATIONS.items():
        for prompt in (True, False):
            try:
                text = tokenizer.apply_chat_template(
                    talk_["messages"],
                    tools=talk_.get("tools"),
                    tokenize=False,
                    add_generation_prompt=prompt,
                    **talk_.get("options", {}),
                )
                row[name + "+" * prompt] = hashlib.sha256(text.encode()).hexdigest()
            except Exception:  # whatever a template or transformers raises
                row[name + "+" * prompt] = "error"
    return row


def main() -> None:
    chat_template_utils.datetime = Pinned
    templates = {}
    for path in sorted(TEMPLATES.glob("*.jinja")):
        bos, eos = next(tokens for start, tokens in TOKENS.items() if path.name.startswith(start))
        names = {name: token for name, token in (("bos_token", bos), ("eos_token", eos)) if token}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), chat_template=path.read_text(encoding="utf-8"), **names
        )
        templates[path.name] = {"bos": bos, "eos": eos, "digests": digests(tokenizer)}
    record = {"now": NOW.isoformat(), "conversations": CONVERSATIONS, "templates": templates}
    (HERE / "templates.json").write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
