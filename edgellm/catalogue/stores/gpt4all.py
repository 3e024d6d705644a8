"""Models that GPT4All has downloaded: flat files."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found, plain

NAME = "GPT4All"
RANK = 4


def find(around: Environment) -> Iterator[Found]:
    """The models of its folder; what it is still downloading has a name that begins with incomplete."""
    data = around.data()
    if data is not None:
        yield from (one for one in plain(data / "nomic.ai/GPT4All") if not one.path.name.startswith("incomplete"))
