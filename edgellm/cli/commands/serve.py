"""`edgellm serve`: answer the HTTP requests of editors, agents and scripts on this machine."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import completion, options
from edgellm.cli.terminal.output import say
from edgellm.errors import BackendError, OptionError
from edgellm.options.generation import MAX_TOKENS
from edgellm.options.loading import PINNED
from edgellm.options.serving import PORT

SERVED = {"parallel": 4, "queue": 64, "prefix_cache": "4G"}  # unless options say otherwise
IDLE = 0.1  # seconds in which a thread that has nothing to do ends
MOST_KEY = 4096  # characters of a file with an API key
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


@options.takes(PORT, *options.SERVER, MAX_TOKENS, *(row for row in options.LOADING if row is not PINNED), *options.WEIGHTS)
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            autocompletion=completion.model_names,
            help="Models, as in edgellm chat; the first one answers requests that name none. Default: the guide. Requests may name "
            "any model on this machine.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    unix: Annotated[str | None, typer.Option("--unix", metavar="PATH", help="Listen on a Unix socket instead.")] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", metavar="KEY", help="The key that requests must bring.")] = None,
    api_key_file: Annotated[Path | None, typer.Option("--api-key-file", metavar="FILE", help="A file that holds the key.")] = None,
    keep_alive: Annotated[
        str, typer.Option("--keep-alive", metavar="TIME", help="Unload a model this long after its last answer; -1 for never.")
    ] = "5m",
    allow_origin: Annotated[
        list[str] | None, typer.Option("--allow-origin", metavar="URL", help="A web page that may use the server. May be repeated.")
    ] = None,
    model_alias: Annotated[
        list[str] | None, typer.Option("--model-alias", metavar="NAME=MODEL", help="Another name for a model. May be repeated.")
    ] = None,
    mcp: options.Mcp = None,
    chosen: options.Chosen = options.NONE,
) -> None:
    """Serve models over HTTP.

    Programs that speak OpenAI's, Anthropic's or Ollama's API can use it. It is for this machine: requests of web pages are
    refused, and listening on an address that others can reach needs --api-key.

    \b
    edgellm serve
    edgellm serve qwen3-0.6b --parallel 8
    curl http://127.0.0.1:11535/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Hello"}]}'
    """
    try:
        from edgellm.server.run import THREADS
        from edgellm.server.run import serve as run
    except ModuleNotFoundError as error:
        raise BackendError(f"edgellm serve needs {error.name}; install it with: pip install 'edgellm[serve]'") from error
    from edgellm.server.settings import Settings

    settings = Settings(
        models=tuple(_understood(name) for name in models or ["guide"]),
        host=host,
        port=chosen.values.get("port", PORT.default),
        unix=unix,
        api_key=_key(api_key, api_key_file),
        keep_alive=_seconds(keep_alive),
        origins=frozenset(_origin(each) for each in allow_origin or ()),
        aliases=dict(_alias(each) for each in model_alias or ()),
        mcp=options.mcp_servers(mcp),
        max_tokens=limit if isinstance(limit := chosen.values.get("max_tokens"), int) else None,
        load=SERVED | chosen.part("loading"),
    )
    _log_to_stderr()
    run(settings, lambda address, server: _started(address, settings.models[0], is_local=settings.is_local))
    say("stopped")
    workers = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in workers:
        thread.join(IDLE)
    if any(thread.is_alive() for thread in workers):  # a model is being loaded, for nobody now
        sys.stderr.flush()
        os._exit(0)


def _started(address: str, model: str, *, is_local: bool) -> None:
    if not is_local:
        say("other machines can reach this server, and what they send is not encrypted")
    say(f"serving {model} on {address}; Ctrl-C stops")


def _understood(name: str) -> str:
    """A model's name in edgellm's spelling. Raises ModelNotFound."""
    from edgellm.catalogue.names import meant, resolve

    known, note = meant(name)
    if note:
        say(note)
    resolve(known)
    return known


def _key(key: str | None, file: Path | None) -> str | None:
    """The API key. Raises OptionError."""
    if file is not None:
        if key is not None:
            raise OptionError("--api-key and --api-key-file were given together; leave one of them out")
        try:
            with file.open(encoding="utf-8") as opened:
                key = opened.read(MOST_KEY).strip()
        except (OSError, UnicodeError) as error:
            raise OptionError(f"--api-key-file {file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise OptionError("--api-key: give printable ASCII characters without spaces")
    return key


def _seconds(text: str) -> float | None:
    """A time such as 5m, 90s or 1h; None for a negative one."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if match is None or not math.isfinite(seconds := float(match[1]) * SECONDS[match[2]]):
        raise OptionError(f"--keep-alive {text}: give a time such as 90s, 5m or 1h, 0 for none, or -1 for ever")
    return None if seconds < 0 else seconds


def _origin(text: str) -> str:
    if text != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", text):
        raise OptionError(f"--allow-origin {text}: give the beginning of a page's address, such as http://localhost:3000")
    return text


def _alias(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    if not (name and equals and model):
        raise OptionError(f"--model-alias {text}: give NAME=MODEL, such as gpt-4o=qwen3-4b")
    return name, model


def _log_to_stderr() -> None:
    """A line of the server's log for each request."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("edgellm.server")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
