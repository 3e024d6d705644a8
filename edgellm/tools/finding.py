"""Results of a check of a model file, one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`check`: what was looked at; `status`: "skipped" where there was nothing to look at; `text`: what was found, what to do."""

    check: str
    status: Status
    text: str
