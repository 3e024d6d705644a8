"""Chats with made-up models: messages, answers, and a session over a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fake_model import FakeModel, FakeStream

from edgellm.api.records import Event
from edgellm.cli import app, opening
from edgellm.cli.chat.conversation import Dialogue


def say(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def text_of(events: Iterator[Event]) -> str:
    return "".join(text for kind, text, *_ in events if kind == "text")


def conversation(*answers: str | FakeStream, **settings: Any) -> tuple[Dialogue, FakeModel]:
    model = FakeModel(*answers)
    return Dialogue(model, settings), model  # type: ignore[arg-type]  # stands in for a Model


def chat_over_pipe(
    monkeypatch: pytest.MonkeyPatch, text: str, *answers: str | FakeStream, name: str = "m"
) -> tuple[int, FakeModel]:
    model = FakeModel(*answers)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(opening, "open_model", lambda name, options: model)
    return app.run(["chat", name]), model
