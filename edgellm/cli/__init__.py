"""The command line: parses, calls the library, prints."""
from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `edgellm` command."""
    from edgellm.cli.app import run

    sys.exit(run(sys.argv[1:]))
