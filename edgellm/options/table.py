"""All rows of the option table, by name."""

from __future__ import annotations

from edgellm.options.generation import GENERATION
from edgellm.options.loading import LOADING
from edgellm.options.option import Option
from edgellm.options.sampling import SAMPLING
from edgellm.options.serving import SERVING
from edgellm.options.tools import TOOLS

TABLE: dict[str, Option] = {row.name: row for row in (*SAMPLING, *GENERATION, *LOADING, *TOOLS, *SERVING)}
