"""The one table of commands, chat commands and options that the guide may name; CI holds it against the command line."""
from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `edgellm`: what it does in a few words, and whether the command line has it already."""

    does: str
    exists: bool = True


# When a command arrives, set `exists`, write the corpus again and train: answers and questions switch with it.
COMMANDS = {
    "chat": Command("talk to a model"),
    "run": Command("answer one prompt"),
    "show": Command("say what a model file is"),
    "tokenize": Command("print the tokens of a text"),
    "bench": Command("measure tokens per second"),
    "pull": Command("download a model"),
    "list": Command("list the models on this machine"),
    "fit": Command("say whether a model fits and how fast it will be"),
    "rm": Command("delete a model"),
    "path": Command("print where a model file is"),
    "import": Command("add a model file of your own"),
    "doctor": Command("check this machine"),
    "embed": Command("make vectors of the lines of a text"),
    "convert": Command("make a GGUF file of a checkpoint"),
    "quantize": Command("make a smaller file of a model"),
}
EXISTS = frozenset(name for name, command in COMMANDS.items() if command.exists)
CHAT_COMMANDS = {
    "help": "list the commands", "exit": "leave", "clear": "forget the conversation", "regen": "make the last answer again",
    "system": "show or set the system prompt", "set": "show or set an option", "stats": "tokens and speed of the last answer",
    "model": "go on with another model", "undo": "take the last question and its answer back", "fork": "go on as another chat",
    "file": "let a text file come with the next message", "save": "save the chat", "load": "go on with a saved chat",
    "copy": "copy the last answer", "think": "let the model think before it answers, or not",
    "context": "show what the model still sees", "mcp": "list MCP servers and what they offer",
}
OPTIONS = frozenset({
    "-n", "--temp", "--top-k", "--top-p", "--min-p", "--seed", "--context", "-c", "--threads", "-t", "--kv-type", "--sinks",
    "--system", "--raw", "--stats", "--json", "--graph", "--tensors", "--debug", "--version", "--help", "--install-completion",
    "-p", "-r", "-s", "--no-bos", "--special", "--force", "--yes", "--copy", "--no-timing",
})
CODE = re.compile(r"`([^`]+)`")
CALL = re.compile(r"(?:^|[|&;] *|\./scripts/)edgellm +(?:(?!-)([a-z]+)|-)")
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")
SLASH = re.compile(r"(?<![\w./])/([a-z]+)\b(?!/)")


def unknown_names(text: str, commands: frozenset[str] = EXISTS) -> list[str]:
    """Commands, chat commands and options that a text names in backticks and that do not exist."""
    unknown: list[str] = []
    for code in CODE.findall(text):
        unknown += [f"edgellm {name}" for name in CALL.findall(code) if name and name not in commands]
        unknown += [f"/{name}" for name in SLASH.findall(code) if name not in CHAT_COMMANDS]
        if "edgellm" in code or code.startswith("-"):
            unknown += [name for name in OPTION.findall(code) if name not in OPTIONS]
    return unknown


def named_commands(text: str) -> set[str]:
    """The commands of `edgellm` that a text names in backticks."""
    return {name for code in CODE.findall(text) for name in CALL.findall(code) if name}
