"""Bodies of Ollama's API, and the options of the library that they ask for."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any  # Any: JSON

from pydantic import BaseModel, BeforeValidator, Field, StrictFloat

from edgellm import Model
from edgellm.server.parts import Content, joined, picture_of_base64
from edgellm.server.problems import Problem
from edgellm.server.sampling import SamplingBody

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
LEVELS = ("low", "medium", "high", "max")  # of thinking
USUAL = -1.0  # the server's own keep_alive


class Options(SamplingBody, extra="allow"):
    """The `options` of a request; those that the library has no use for, such as num_gpu, are ignored."""

    num_predict: int | None = None
    stop: str | list[str] | None = None


class Named(BaseModel):
    """A body that names a model; older clients say `name`."""

    model: str | None = None
    name: str | None = None

    @property
    def wanted(self) -> str | None:
        return self.model or self.name


class Asked(Named):
    """The fields that requests for text and for vectors share."""

    options: Options | None = None
    keep_alive: str | StrictFloat | None = None
    truncate: bool | None = None

    @property
    def kept(self) -> float | None:
        """Seconds that the model is kept after the answer; None for ever, USUAL where the request does not say. Raises Problem."""
        return duration(self.keep_alive)


def _checked_think(given: object) -> object:
    """A truth value or a level. Raises Problem."""
    if given is None or isinstance(given, bool) or given in LEVELS:
        return given
    raise Problem(400, f"think {str(given)[:40]!r} is not supported; give true, false, {', '.join(LEVELS[:-1])} or {LEVELS[-1]}.")


class GeneratingBody(Asked):
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    think: Annotated[bool | str | None, BeforeValidator(_checked_think)] = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    shift: bool | None = None

    @property
    def streams(self) -> bool:
        return self.stream is not False

    def generation(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `chat` and `generate`. Raises Problem."""
        asked = self.options or Options.model_validate({})
        options = asked.sampled
        limit = asked.num_predict if asked.num_predict is not None else default
        if limit is not None and limit >= 0:
            options["max_tokens"] = limit
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        if stops := [text for text in stops if text]:
            options["stop"] = stops
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if self.format is not None and self.format != "":
            options["schema"] = self._schema()
        if self.truncate:
            options["context_policy"] = "drop-oldest-turns"
        elif self.shift:
            options["context_policy"] = "ring"
        return options

    def _schema(self) -> dict[str, Any]:
        if self.format == "json":
            return {"type": "object"}
        if isinstance(self.format, dict):
            return self.format
        raise Problem(400, f"format {str(self.format)[:40]!r} is not supported; give json, or a JSON schema.")

    def thinking(self, model: Model) -> dict[str, Any]:
        """Options of `chat` for `think`: a truth value, or how much of it."""
        if self.think is None or model.thinking == "no":
            if self.think:
                raise Problem(400, "this model does not support thinking; leave think out.")
            return {}
        options: dict[str, Any] = {"think": bool(self.think)} if model.thinking == "optional" else {}
        if isinstance(self.think, str):
            options["template_options"] = {"reasoning_effort": self.think}
        return options


class Function(BaseModel, extra="allow"):
    name: str
    arguments: Annotated[dict[str, Any] | str, BeforeValidator(lambda given: {} if given is None else given)] = {}


class OllamaCall(BaseModel, extra="allow"):
    id: str | None = None
    function: Function


class ChatMessage(BaseModel, extra="allow"):
    role: str
    content: str | None = ""
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None


class OllamaChatBody(GeneratingBody):
    messages: list[ChatMessage] = []
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's form: calls have ids, and results those of their calls. Raises Problem."""
        found, open_calls, number = list[dict[str, Any]](), list[tuple[str, str]](), 0
        for message in self.messages:
            one = message.model_dump(exclude_unset=True, exclude={"images", "tool_name"})
            if message.images or message.content is None:
                one["content"] = _with_images(message.content or "", message.images or [])
            if message.tool_calls:
                calls: list[dict[str, Any]] = [
                    {"type": "function", "id": call.id or f"call_{number + k}", "function": call.function.model_dump()}
                    for k, call in enumerate(message.tool_calls)
                ]
                number += len(calls)
                open_calls += [(call["id"], call["function"]["name"]) for call in calls]
                one["tool_calls"] = calls
            if message.role == "tool":
                name = message.tool_name or one.get("name")
                known = next((call for call in open_calls if name in (None, call[1])), None)
                if known is not None:
                    open_calls.remove(known)
                    one.setdefault("tool_call_id", known[0])
                    name = name or known[1]
                if name:
                    one["name"] = name
            found.append(one)
        return found


def _with_images(text: str, images: list[str]) -> Content:
    return joined([*(picture_of_base64(each, "images") for each in images), text])


class GenerateBody(GeneratingBody):
    prompt: str = ""
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    raw: bool | None = None
    images: list[str] | None = None
    context: list[int] | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The prompt as a conversation of one message."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        content: Content = _with_images(self.prompt, self.images) if self.images else self.prompt
        return [*system, {"role": "user", "content": content}]


class EmbedBody(Asked):
    input: str | list[str] = []
    prompt: str | None = None
    dimensions: int | None = None
    truncate: bool = True


class PullBody(Named):
    stream: bool | None = None


class CopyBody(BaseModel):
    source: str
    destination: str


def duration(given: str | float | None) -> float | None:
    """Seconds of Ollama's keep_alive: a number of them, or a text such as 5m or 1h30m; negative for ever. Raises Problem."""
    if given is None or given == "":
        return USUAL
    text = str(given).strip()
    try:
        seconds = float(text)
    except ValueError:
        negative, text = text.startswith("-"), text.removeprefix("-")
        parts = PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise Problem(400, f"keep_alive {str(given)[:40]!r} is not a time; give seconds, or a text such as 5m.") from None
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts) * (-1 if negative else 1)
    if not math.isfinite(seconds) or seconds > 1e9:
        return None
    return None if seconds < 0 else seconds


def moment(seconds: float | None = None) -> str:
    """A time as Ollama writes it; now for None."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
