"""The rows of `serve` alone."""

from __future__ import annotations

from edgellm.options.option import Option

PORT = Option(name="port", kind=int, default=11535, low=0, high=65535, metavar="N", help="Port to listen on.", part="serving")
SERVING = (PORT,)
