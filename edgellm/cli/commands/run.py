"""`edgellm run`: one prompt, one answer on stdout."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.chat.guide import NOTES, is_guide, rule
from edgellm.cli.terminal.answering import show, thought_only
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.piped import PipedText, decoded, file_bytes
from edgellm.cli.terminal.progress import ReadingLine
from edgellm.errors import OptionError
from edgellm.options.sampling import SAMPLING
from edgellm.options.table import TABLE

if TYPE_CHECKING:
    from edgellm.api.model import Model
    from edgellm.api.records import Generation, TokenLogprobs
    from edgellm.api.stream import Stream


@options.takes(*options.RUN, *options.WEIGHTS)
def run(
    model: options.Model,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="The prompt. Text on standard input is appended to it, or is the prompt if none is given."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", metavar="FILE", help="Read the prompt from a file; appended to PROMPT if both are given."),
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option("--image", metavar="FILE", help="Show the model a PNG, JPEG, WebP or GIF. May be repeated.")
    ] = None,
    audio: Annotated[
        list[str] | None, typer.Option("--audio", metavar="FILE", help="Let the model hear WAV, FLAC, MP3 or Ogg. May be repeated.")
    ] = None,
    suffix: Annotated[
        str | None,
        typer.Option("--suffix", metavar="TEXT", help="Fill in what comes between PROMPT and this text, with a model for code."),
    ] = None,
    chosen: options.Chosen = options.NONE,
    system: options.System = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Do not use the chat template; continue the text as it is. "
            "Into a pipe or file, control characters are not filtered.",
        ),
    ] = False,
    plain: options.Plain = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print token counts and speed on stderr at the end.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON at the end: text, token ids, counts and speed.")] = False,
) -> None:
    """Answer one prompt, on stdout.

    A model with a chat template gets the prompt as a user message; one without, or --raw, continues the text.
    Structured output (--schema, --choices, --regex, --grammar) is guaranteed to be valid, unless -n cuts it off.

    More sampling options (DRY, XTC, Mirostat and others) are in docs/options.md.

    \b
    edgellm run qwen3-0.6b "Name three rivers."
    edgellm run stories.gguf "Once upon a time" -n 100 --temp 0
    edgellm run qwen3-0.6b "Summarise:" -f notes.txt
    edgellm run qwen3-0.6b "Is fire hot?" --choices yes,no
    edgellm run smolvlm.gguf "What is this?" --image cat.jpg
    edgellm run qwen2-audio.gguf "What is said?" --audio question.wav
    edgellm run coder.gguf "def f(x):" --suffix "return y"
    """
    from edgellm.cli.forms import form
    from edgellm.cli.opening import check, open_model, sampling_of

    media = [("image", path) for path in image or []] + [("audio", path) for path in audio or []]
    if suffix is not None and media:
        raise OptionError(f"--{media[0][0]} and --suffix were given together: a model for code reads text alone")
    raw = raw or suffix is not None
    prompt = _with_file(prompt, file, raw)
    wanted = form(chosen.values)
    if alone := next((name for name in ("logprobs", "echo") if name in chosen.values and not json_), None):
        raise OptionError(f"--{alone} needs --json")
    piped = PipedText()
    if prompt is None:
        check(model)  # before anybody is asked for a prompt
        if not piped.connected:
            raise OptionError(
                f'PROMPT is missing: edgellm run {model} "your prompt", or pipe text into it; edgellm chat {model} starts a chat'
            )
    text = None if prompt is not None else _whole(None, piped, raw)
    with open_model(model, chosen.part("loading")) as opened:
        text = text if text is not None else _whole(prompt, piped, raw, may_be_empty=suffix is not None)
        settings = sampling_of(model, chosen.part("sampling", "generation")) | wanted
        sampling = _in_force(opened, settings)
        reply = opened.info.has_template and not raw
        if not reply:
            _refuse(system, chosen.part("chat"))
        reading = ReadingLine(opened.info.context, opened.info.context_train, asks=True)
        settings |= {"progress": reading.read, **chosen.part("chat")}
        if reply and is_guide(opened) and not wanted:
            if system:
                say(NOTES["system"])
            if not json_ and (refusal := rule(opened)(text)) is not None:
                print(refusal)
                return
        if suffix is not None:
            stream = opened.infill(text, suffix, stream=True, **settings)
        else:
            stream = _reply(opened, text, media, system, settings) if reply else _continuation(opened, text, media, settings)
        if json_:
            _print_json(model, stream, opened, sampling, reading)
        else:
            show(stream.events(), reading, raw=raw, reply=reply, plain=plain)
        _close(stream, stats, limited="max_tokens" in chosen.values, formed=bool(wanted))


def _in_force(model: Model, settings: Mapping[str, Any]) -> dict[str, object]:
    """The sampling options of an answer, those of the model and the library included. Raises OptionError."""
    given = {name: value for name, value in settings.items() if name in TABLE and TABLE[name].part == "sampling"}
    return {row.name: getattr(model.sampling_options(**given).options, row.name) for row in SAMPLING if row.name != "seed"}


def _print_json(name: str, stream: Stream, model: Model, sampling: Mapping[str, object], reading: ReadingLine) -> None:
    """The answer, or its beginning where Ctrl-C ends it."""
    try:
        with reading:
            stream.drain()
    except KeyboardInterrupt:
        stream.close()
        print(_report(name, stream.result, model, sampling))
        raise
    print(_report(name, stream.result, model, sampling))


def _with_file(prompt: str | None, file: Path | None, raw: bool) -> str | None:
    """PROMPT and the text of --file, a blank line between them."""
    if file is None:
        return prompt
    try:
        data = file_bytes(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"--file {file}: cannot be read ({reason}); give a text file") from error
    text = decoded(data, f"--file {file}").replace("\r\n", "\n").replace("\r", "\n")
    text = text if raw else text.removesuffix("\n")
    return f"{prompt}\n\n{text}" if prompt else text


def _report(name: str, result: Generation, model: Model, sampling: Mapping[str, object]) -> str:
    """An answer as JSON, with the sampling options that it was made with."""
    stats = result.stats
    speeds = {"tokens_per_second": stats.tokens_per_second, "prompt_tokens_per_second": stats.prompt_tokens_per_second}
    return json.dumps(
        {
            "model": name,
            "text": result.text,
            "parsed": result.parsed,
            "thinking": result.thinking,
            "ids": list(result.token_ids),
            "stop_reason": result.stop_reason,
            "cut_while_thinking": thought_only(result),
            "prompt_tokens_dropped": _dropped(result, model.info.context),
            "seed": result.seed,
            "options": sampling,
            "stats": dataclasses.asdict(stats) | speeds,
            **{
                name: [_logprobs(each, model) for each in found]
                for name, found in (("logprobs", result.logprobs), ("prompt_logprobs", result.prompt_logprobs))
                if found is not None
            },
        },
        indent=2,
    )


def _logprobs(of: TokenLogprobs, model: Model) -> dict[str, Any]:
    def one(token: int, logprob: float) -> dict[str, Any]:
        return {"id": token, "text": model.tokenizer.decode([token]), "logprob": logprob}

    return {**one(of.token_id, of.logprob), "top": [one(*each) for each in of.top]}


def _whole(prompt: str | None, piped: PipedText, raw: bool, *, may_be_empty: bool = False) -> str:
    """The prompt and what is piped in, a blank line between them."""
    text = piped.text(wait=prompt is None or prompt == "-")
    if text is None:
        say("nothing came on standard input, so the prompt is used alone (< /dev/null avoids this wait)")
    if text and not raw:
        text = text.removesuffix("\n").removesuffix("\r")
    joined = "\n\n".join(part for part in (prompt if prompt != "-" else None, text) if part)
    if not joined and not may_be_empty:
        raise OptionError("the prompt is empty: give some text to answer or to continue")
    return joined


Media = list[tuple[str, str]]  # "image" or "audio", and a path


def _reply(model: Model, text: str, media: Media, system: str | None, settings: dict[str, Any]) -> Stream:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system is not None else []
    content = [*({"type": kind, kind: file} for kind, file in media), {"type": "text", "text": text}] if media else text
    answer: Stream = model.chat([*messages, {"role": "user", "content": content}], stream=True, **settings)
    return answer


def _continuation(model: Model, text: str, media: Media, settings: dict[str, Any]) -> Stream:
    if not media:
        return model.stream(text, **settings)
    from edgellm.chat.audio import Audio  # brings NumPy
    from edgellm.chat.images import Image

    return model.stream([*(Image(file) if kind == "image" else Audio(file) for kind, file in media), text], **settings)


def _refuse(system: str | None, thinking: Mapping[str, object]) -> None:
    """Raises OptionError for options of replies, where the text is continued."""
    refused = {"--system": "put the text into the prompt"} if system is not None else {}
    refused |= {options.typed(name, value): "leave it out" for name, value in thinking.items()}
    for option, instead in refused.items():
        raise OptionError(f"{option} needs a model with a chat template, and no --raw: {instead}")


def _dropped(result: Generation, context: int) -> int:
    """Tokens of the prompt that did not fit into the context."""
    return max(0, result.stats.prompt_tokens - context) + result.stats.left_out_tokens


def _close(stream: Stream, stats: bool, *, limited: bool, formed: bool) -> None:
    """The note on stderr after an answer: that it was cut by a limit nobody set, or before it was of the form that it was to
    have (`formed`), and the figures if wanted.
    """
    from edgellm.cli.terminal.format_stats import summary

    result = stream.result
    if thought_only(result):
        say(f"cut after {result.stats.generated_tokens} tokens of thinking, before the answer (-n sets another limit)")
    elif formed and result.stop_reason != "eog":
        wrong = "no valid JSON" if result.parse is not None else "not of the form that was asked for"
        say(f"cut after {result.stats.generated_tokens} tokens: this is not all of the answer, and {wrong}")
    elif result.stop_reason == "loop":
        say("stopped: the answer repeats itself over and over")
    elif not limited and result.stop_reason == "length":
        say(f"stopped after {result.stats.generated_tokens} tokens, the size of the context (-n sets another limit)")
    if left_out := result.stats.left_out_tokens:
        say(f"{left_out:,} tokens of the text before and after the gap didn't fit into the context (--context sets a larger one)")
    if stats:
        say(summary(result))
