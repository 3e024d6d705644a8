"""One server with the guide for the tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as started:
        yield started
