"""The command line: parses, calls the library, prints."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `edgellm` command."""
    try:
        from edgellm.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules are imported
        code = 130
    sys.exit(code)
