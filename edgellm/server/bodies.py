"""Reads the JSON of a request into a Pydantic model, within limits of size and depth."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar  # Any: JSON

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from edgellm.server.problems import Problem
from edgellm.server.settings import MOST_BODIES, MOST_BODY, MOST_DEPTH, SMALL_BODY

Body = TypeVar("Body", bound=BaseModel)


class ClientGone(Exception):
    """The client left before its answer was complete."""


async def read(request: Request, kind: type[Body]) -> Body:
    """The body as a `kind`, in which null stands for a field that is left out.

    Raises Problem: too long, no JSON, or of another shape; ClientGone.
    """
    found = parse(await RECEIVING.bytes(request))
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if value is not None}
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise first_fault(error, "the body") from error


def first_fault(error: ValidationError, whole: str) -> Problem:
    """The field that is wrong, or `whole` (what to call all of it) where no field is, and why."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "lax", "json")))
    return Problem(400, f"{where or whole}: {first['msg']}.", code="invalid_value")


class Receiving:
    """Bytes of all bodies that are being received, so that many large ones do not fill the memory."""

    def __init__(self) -> None:
        self._total = 0

    async def bytes(self, request: Request) -> bytes:
        """A body. Raises Problem for one that is too long, or where too many are large; ClientGone."""
        body = bytearray()
        try:
            async for part in request.stream():
                self._total += len(part)
                body += part
                if len(body) > MOST_BODY:
                    raise too_long()
                if self._total > MOST_BODIES and len(body) > SMALL_BODY:
                    raise Problem(503, "too many large bodies arrive at once; try again.", headers=BUSY)
        except ClientDisconnect as gone:
            raise ClientGone from gone
        finally:
            self._total -= len(body)
        return bytes(body)


RECEIVING, BUSY = Receiving(), {"connection": "close", "retry-after": "2"}


def too_long() -> Problem:
    return Problem(413, f"the body is longer than {MOST_BODY >> 20} MiB; send less at once.", headers={"connection": "close"})


def parse(body: bytes) -> Any:
    """JSON as RFC 8259 has it: UTF-8, no NaN, no lone surrogates, nested `MOST_DEPTH` deep at most. Raises Problem."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        if _depth(value) > MOST_DEPTH:
            raise RecursionError
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # raises for lone surrogates
    except RecursionError as error:
        raise Problem(400, f"the body nests lists and objects deeper than {MOST_DEPTH}.", code="invalid_json") from error
    except UnicodeError as error:
        raise Problem(400, "the body is not valid UTF-8 text.", code="invalid_json") from error
    except ValueError as error:
        raise Problem(400, f"the body is not valid JSON: {str(error)[:200]}.", code="invalid_json") from error
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _depth(value: Any) -> int:
    """How deep lists and objects are nested; stops counting past the limit."""
    level, depth = [value], 0
    while level and depth <= MOST_DEPTH:
        nested = [each for each in level if isinstance(each, dict | list)]
        depth += bool(nested)
        level = [child for each in nested for child in (each.values() if isinstance(each, dict) else each)]
        if not nested:
            break
    return depth
