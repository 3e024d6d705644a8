"""`edgellm transcribe`: the words of a clip, on stdout."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.options import loading


@options.takes(loading.CONTEXT, loading.THREADS, loading.BACKEND, loading.MMPROJ, *options.WEIGHTS)
def transcribe(
    model: options.Model,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A clip: WAV, FLAC, MP3 or Ogg.")],
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Ask for it in these words instead of the model's usual ones.")
    ] = None,
    chosen: options.Chosen = options.NONE,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON: text, token ids, counts and speed.")] = False,
) -> None:
    """Write down what is said in a clip.

    MODEL is one that hears, such as Qwen3-ASR, Voxtral or Gemma 4; its projector lies beside it, or is given as --mmproj.

    \b
    edgellm transcribe qwen3-asr.gguf talk.mp3
    """
    from edgellm.cli.opening import open_model
    from edgellm.cli.terminal.filter import clean
    from edgellm.cli.terminal.progress import ReadingLine

    with (
        open_model(model, chosen.part("loading")) as opened,
        ReadingLine(opened.info.context, opened.info.context_train) as reading,
    ):
        answer = opened.transcribe(file, prompt=prompt, progress=reading.read)
    if json_:
        facts = {"model": model, "file": file, "text": answer.text, "token_ids": answer.token_ids}
        print(json.dumps(facts | {"stop_reason": answer.stop_reason, "stats": asdict(answer.stats)}, ensure_ascii=False))
    else:
        print(clean(answer.text))
