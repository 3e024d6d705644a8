"""The arguments and options that several commands share, under llama.cpp's names where it has one."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from edgellm.cli.checks import context_policy, number, seed
from edgellm.cli.completion import context_policies, kv_types, model_names, where
from edgellm.cli.terminal.output import say
from edgellm.errors import OptionError


def understood(context: typer.Context, name: str | None) -> str | None:
    """A model's name in edgellm's spelling; a line on stderr says so where another was typed. Raises ModelNotFound."""
    if name is None or context.resilient_parsing:  # the latter: a shell asks for completions
        return name
    from edgellm.catalogue.names import meant

    known, note = meant(name)
    if note:
        say(note)
    return known


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        callback=understood,
        autocompletion=model_names,
        help="A .gguf file, a catalogue name (qwen3-0.6b, qwen3-0.6b:Q8_0), or hf:owner/repo[:TYPE|FILE].",
    ),
]
Predict = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--predict",
        "--n-predict",
        metavar="N",
        show_default=False,
        callback=number(-1),
        help="Maximum number of tokens to generate; -1 for no limit. Default: as many as the context holds.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temp",
        "--temperature",
        metavar="X",
        show_default=False,
        callback=number(0),
        help="Sampling temperature; 0 is greedy. Default: 0.8. The model may recommend other sampling defaults.",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        metavar="K",
        show_default=False,
        callback=number(-1),
        help="Sample from the K most likely tokens; 0 disables. Default: 40.",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        show_default=False,
        callback=number(0, 1),
        help="Sample from the most likely tokens whose probabilities add up to P; 1 disables. Default: 0.95.",
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="P",
        show_default=False,
        callback=number(0, 1),
        help="Leave out tokens less likely than P times the most likely one; 0 disables. Default: 0.05.",
    ),
]
RepeatPenalty = Annotated[
    float | None,
    typer.Option(
        "--repeat-penalty",
        metavar="X",
        show_default=False,
        callback=number(0, above=True),
        help="Penalise tokens that are among the last 64; 1 disables. Default: 1.",
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        "--presence-penalty",
        metavar="X",
        show_default=False,
        callback=number(),
        help="Subtract X from the logit of each of these tokens. Default: 0.",
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty",
        metavar="X",
        show_default=False,
        callback=number(),
        help="Subtract X from it for each occurrence. Default: 0.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "-s", "--seed", metavar="N", show_default=False, callback=seed, help="Seed for sampling; -1 for a random one. Default: -1."
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", metavar="TEXT", show_default=False, help=r"End the answer before this text (\n is a line break). May be repeated."
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--context",
        "--ctx-size",
        metavar="N",
        show_default=False,
        callback=number(8, 2**30),
        help="Context length in tokens. Default: what it was trained for, or as much of it as a quarter of the free memory holds.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "-t",
        "--threads",
        metavar="N",
        show_default=False,
        callback=number(1, 1024),
        help="Compute threads. Default: one per physical core.",
    ),
]
ThreadsBatch = Annotated[
    int | None,
    typer.Option(
        "-tb",
        "--threads-batch",
        metavar="N",
        show_default=False,
        callback=number(1, 1024),
        help="Threads for prompt processing. Default: same as --threads.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        show_default=False,
        autocompletion=where,
        help="cpu, mlx, or auto: the GPU on a Mac if the model fits, else the CPU. Default: auto.",
    ),
]
KvType = Annotated[
    str | None,
    typer.Option(
        "--kv-type",
        metavar="TYPE",
        show_default=False,
        autocompletion=kv_types,
        help="KV cache type: f16, q8_0 (about half the size), q4_0 (a quarter) or f32. Default: f16, or q8_0 if memory is short.",
    ),
]
Sinks = Annotated[
    int | None,
    typer.Option(
        "--sinks",
        metavar="N",
        show_default=False,
        callback=number(0),
        help="First tokens (attention sinks) that are never evicted. Default: 4.",
    ),
]
Pinned = Annotated[
    int | None,
    typer.Option(
        "--pinned",
        metavar="N",
        show_default=False,
        callback=number(0),
        help="Never evict the system prompt, of up to N tokens. Default: only the sinks are kept.",
    ),
]
ContextPolicy = Annotated[
    str | None,
    typer.Option(
        "--context-policy",
        metavar="NAME",
        show_default=False,
        autocompletion=context_policies,
        callback=context_policy,
        help="When the context is full: ring (evict the oldest tokens), drop-oldest-turns (drop whole turns, but not the system "
        "prompt) or error. Default: ring.",
    ),
]
Lora = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        metavar="FILE[:SCALE]",
        show_default=False,
        help="Apply a LoRA adapter, a GGUF file, with this scale (default 1). May be repeated.",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Do not render Markdown. NO_COLOR does the same.")]
System = Annotated[
    str | None,
    typer.Option(
        "--system", "-sys", "--system-prompt", metavar="TEXT", show_default=False, help="The system prompt. Default: none."
    ),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        show_default=False,
        help="Turn thinking before the answer on or off. Default: up to the chat template. Thinking is shown in a terminal only.",
    ),
]
ThinkBudget = Annotated[
    int | None,
    typer.Option(
        "--think-budget",
        metavar="N",
        show_default=False,
        callback=number(0),
        help="End thinking after N tokens. Default: no limit.",
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="ngram|MODEL",
        show_default=False,
        help="Speculative decoding, by prompt lookup (ngram) or with a small model of the same vocabulary. With ngram, or at "
        "temperature 0, or with a seed, the output is identical; with a draft model and no seed it is another sample from the "
        "same distribution. Default: none.",
    ),
]
NoMmap = Annotated[
    bool,
    typer.Option(
        "--no-mmap",
        help=(
            "Read the weights into memory instead of mapping the file, and repack them there (x86 with VNNI): "
            "takes longer to load, "
            "decodes faster."
        ),
    ),
]
Mlock = Annotated[bool, typer.Option("--mlock", help="Keep the weights in physical memory, never swapped out.")]
Force = Annotated[bool, typer.Option("--force", help="Load the model even if it does not fit into free memory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_FLAGS = {  # the library's names, where its errors reach the command line
    "context_policy": "--context-policy",
    "backend": "--backend",
    "context": "--context",
    "kv_type": "--kv-type",
    "max_tokens": "-n",
    "seed": "--seed",
    "pinned": "--pinned",
    "sinks": "--sinks",
    "stop": "--stop",
    "threads": "--threads",
    "threads_batch": "--threads-batch",
    "temperature": "--temp",
    "chunks": "--chunks",
    "stride": "--stride",
    "think_budget": "--think-budget",
    "draft": "--draft",
    "logprobs": "--logprobs",
    "schema": "--schema",
    "choices": "--choices",
    "regex": "--regex",
    "grammar": "--grammar",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    },
}
_IN_PYTHON = re.compile(r" \((?:force=True|mmap=False|mlock=True)\)")
_LIBRARY = re.compile(rf"\b({'|'.join(_FLAGS)})=(?:'([^']+)')?")


def given(**options: object) -> dict[str, object]:
    """The options that the user set: the library's defaults hold for the others."""
    return {name: value for name, value in options.items() if value is not None}


def weights(no_mmap: bool, mlock: bool) -> dict[str, bool | None]:
    """How the weights are held, for `given`."""
    return {"mmap": False if no_mmap else None, "mlock": mlock or None}


def stops(texts: list[str] | None) -> tuple[str, ...] | None:
    r"""The texts of --stop, in which \n and \t are what they are in a program; None without any. Raises OptionError for ""."""
    if texts and "" in texts:
        raise OptionError("--stop '': give a text of at least one character")
    return tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in texts) if texts else None


def adapters(given: list[str] | None) -> list[tuple[str, float]] | None:
    """The files and scales of --lora. Raises OptionError for no name at all."""
    if given and "" in given:
        raise OptionError("--lora '': give the file of an adapter")
    return [_adapter(text) for text in given] if given else None


def _adapter(text: str) -> tuple[str, float]:
    """A path may have colons: only a number behind the last one is a scale."""
    path, colon, scale = text.rpartition(":")
    try:
        return (path, float(scale)) if colon and path else (text, 1.0)
    except ValueError:
        return text, 1.0


def in_flags(message: str) -> str:
    """An error of the library in the words of the command line: `--context 7` for `context=7`."""
    return _IN_PYTHON.sub("", _LIBRARY.sub(lambda match: f"{_FLAGS[match[1]]} {match[2] or ''}", message))
