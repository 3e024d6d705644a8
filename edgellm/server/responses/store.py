"""Responses of this server's run, in memory alone, which later requests can name instead of sending all items again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON

from edgellm.server.problems import Problem
from edgellm.server.responses.items import Item, identity

MOST_RESPONSES, MOST_BYTES = 1000, 64 << 20
REFERENCE = "item_reference"  # the type of an item that names another one


@dataclass(frozen=True, slots=True)
class Stored:
    """A response, and the items that it answers with those of responses before it, as JSON: objects take five times the memory."""

    data: bytes

    @property
    def response(self) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(self.data)[0]
        return response

    @property
    def given(self) -> list[Item]:
        given: list[Item] = json.loads(self.data)[1]
        return given

    @property
    def items(self) -> list[Item]:
        """The items that a response which continues this one begins with."""
        response, given = json.loads(self.data)
        return [*given, *response["output"]]


class ResponseStore:
    """The newest responses; the oldest go first."""

    def __init__(self) -> None:
        self._found: dict[str, Stored] = {}
        self._size = 0

    def resolved(self, items: Sequence[Item], previous: str | None) -> list[Item]:
        """Items behind those of a previous response, references replaced. Raises Problem for what is not stored (any more)."""
        before: list[Item] = []
        if previous:
            if previous not in self._found:
                raise Problem(400, _missing(previous), code="previous_response_not_found")
            before = self._found[previous].items
        wanted = {str(item.get("id")) for item in items if item.get("type") == REFERENCE}
        found = self._found.values() if wanted else ()
        known = {name: item for each in found for item in each.items if (name := item["id"]) in wanted}
        if missing := wanted - known.keys():
            raise Problem(400, f"the item {min(missing)[:80]!r} is not stored here; send the item itself.", code="item_not_found")
        items = [*before, *(known[str(item.get("id"))] if item.get("type") == REFERENCE else item for item in items)]
        return [item if isinstance(item.get("id"), str) else {**item, "id": identity("msg")} for item in items]

    def add(self, response: dict[str, Any], given: Sequence[Item]) -> None:
        """Keep a response."""
        stored = self._found[response["id"]] = Stored(json.dumps([response, given]).encode())
        self._size += len(stored.data)
        while len(self._found) > MOST_RESPONSES or self._size > MOST_BYTES:
            self.remove(next(iter(self._found)))

    def find(self, name: str) -> Stored:
        """Raises Problem."""
        if name not in self._found:
            raise Problem(404, _missing(name), code="not_found")
        return self._found[name]

    def remove(self, name: str) -> None:
        """Forget a response. Raises Problem."""
        self._size -= len(self.find(name).data)
        del self._found[name]


def _missing(name: str) -> str:
    return f"the response {name[:80]!r} is not stored here: responses are kept until the server stops, the newest {MOST_RESPONSES}."
