"""Commands with a model that is not loaded, and something other than a keyboard connected to them."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from fake_model import FakeModel, FakeStream

from edgellm.cli import opening


class Loader:
    """Stands in for `open_model`; remembers how it was called."""

    def __init__(self, model: FakeModel) -> None:
        self.model, self.calls = model, list[tuple[str, dict[str, Any]]]()

    def __call__(self, name: str, options: dict[str, Any]) -> FakeModel:
        self.calls.append((name, options))
        return self.model


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes, *, close: bool = True) -> int:
    """Connect stdin to a pipe with `data`; returns its writing end (closed already, if `close`)."""
    read, write = os.pipe()
    os.write(write, data)
    if close:
        os.close(write)
    monkeypatch.setattr(sys, "stdin", os.fdopen(read, encoding="utf-8"))
    return write


def use(monkeypatch: pytest.MonkeyPatch, *answers: str | FakeStream, template: bool = True) -> Loader:
    loader = Loader(FakeModel(*answers, template=template))
    monkeypatch.setattr(opening, "open_model", loader)
    monkeypatch.setattr(opening, "check", lambda name: None)
    return loader
