"""/v1/audio/transcriptions: the words of a clip, of models that hear."""

from __future__ import annotations

import asyncio
import io
from typing import Any, Literal  # Any: JSON

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from edgellm import Generation
from edgellm.server.answers import note
from edgellm.server.bodies import RECEIVING, first_fault
from edgellm.server.forms import fields_of
from edgellm.server.models import Models
from edgellm.server.openai.chat import sse, sse_problem
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import COMMENT, SSE, Chunks, pinged, streamed, unless_gone

MARK = "<asr_text>"  # what Qwen3-ASR writes between the language and the words
LISTS = ("include", "timestamp_granularities")


class TranscriptionForm(BaseModel):
    """The fields beside the file. `prompt` is asked in place of the model's own question. Models find the language themselves."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "verbose_json"] = "json"
    temperature: float | None = None
    stream: bool = False
    timestamp_granularities: list[Literal["segment"]] | None = None


class Transcriptions:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        fields = fields_of(await RECEIVING.bytes(request), request.headers.get("content-type", ""))
        clip = fields.pop("file", [b""])[-1]
        if not clip:
            raise Problem(400, "file: the form has no clip; send its bytes as the field file.", code="invalid_value")
        form = _form_of(fields)
        options: dict[str, Any] = {"temperature": form.temperature or 0, "prompt": form.prompt or None}
        if self._settings.max_tokens is not None:
            options["max_tokens"] = self._settings.max_tokens
        if form.stream:
            return await streamed(request, self._stream(request, form, clip, options), SSE, sse_problem)
        return await unless_gone(request.receive, self._whole(request, form, clip, options))

    async def _whole(self, request: Request, form: TranscriptionForm, clip: bytes, options: dict[str, Any]) -> Response:
        async with self._models.use(form.model) as loaded:
            heard = await loaded.model.atranscribe(clip, **options)
            note(request, loaded, heard)
        text = heard.text.strip()
        if form.response_format == "text":
            return PlainTextResponse(text + "\n")
        found: dict[str, Any] = {"text": text, "usage": _usage(heard)}
        if form.response_format == "verbose_json":
            seconds = await asyncio.to_thread(_seconds, clip)
            segment = {"id": 0, "start": 0.0, "end": seconds, "text": text, "tokens": list(heard.token_ids)}
            found |= {"task": "transcribe", "language": form.language or "", "duration": seconds, "segments": [segment]}
        return JSONResponse(found)

    async def _stream(self, request: Request, form: TranscriptionForm, clip: bytes, options: dict[str, Any]) -> Chunks:
        async with self._models.use(form.model) as loaded:
            model, text, sent = loaded.model, "", 0
            names_language = len(await asyncio.to_thread(model.tokenize, MARK, add_special=False, parse_special=True)) == 1
            async for event in pinged(await model.atranscribe(clip, stream=True, **options)):
                if event is None:
                    yield COMMENT
                elif event.kind == "text":
                    text += event.text
                    said = _words(text, names_language)
                    if len(said) > sent:
                        yield sse({"type": "transcript.text.delta", "delta": said[sent:]})
                    sent = len(said)
                elif event.result is not None:
                    note(request, loaded, event.result)
                    if not sent and (rest := text.strip()):
                        yield sse({"type": "transcript.text.delta", "delta": rest})
                    whole = text.rpartition(MARK)[2].strip()
                    yield sse({"type": "transcript.text.done", "text": whole, "usage": _usage(event.result)})


def _words(text: str, names_language: bool) -> str:
    """The words so far: none before the mark, where a model writes one, and no white space at either end that more may follow."""
    _, mark, after = text.rpartition(MARK)
    return after.strip() if mark or not names_language else ""


def _form_of(fields: dict[str, list[bytes]]) -> TranscriptionForm:
    """Raises Problem."""
    try:
        texts = {name: [value.decode() for value in values] for name, values in fields.items()}
        return TranscriptionForm.model_validate({name: found if name in LISTS else found[-1] for name, found in texts.items()})
    except UnicodeDecodeError as error:
        raise Problem(400, "a field of the form is not UTF-8 text.", code="invalid_form") from error
    except ValidationError as error:
        raise first_fault(error, "the form") from error


def _seconds(clip: bytes) -> float:
    """How long a clip is that was read before."""
    import soundfile

    return float(soundfile.info(io.BytesIO(clip)).duration)


def _usage(heard: Generation) -> dict[str, Any]:
    read, written = heard.stats.prompt_tokens, heard.stats.generated_tokens
    return {"type": "tokens", "input_tokens": read, "output_tokens": written, "total_tokens": read + written}
