"""Folders of the checkout that tests read, wherever a test stands, and the ones that its helper modules are imported from."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
SHARED = ROOT.parent / "shared"
IMPORTED = [str(TESTS / "helpers"), str(TESTS / "models")]
