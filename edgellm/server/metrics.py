"""/metrics: counters and times of the requests, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from edgellm.server.answers import Notes
from edgellm.server.models import Models

FIRST = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
BETWEEN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
KINDS = ("prompt", "cached", "generated", "evicted")


class Histogram:
    """How often a time fell below each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        yield f"# TYPE {name} histogram"
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._requests, self._tokens = Counter[tuple[int, str]](), Counter[tuple[str, str]]()
        self._first, self._between = Histogram(FIRST), Histogram(BETWEEN)

    def add(self, status: int, notes: Notes) -> None:
        """A request is complete."""
        self._requests[status, notes.model] += 1
        if not notes.model:
            return
        for kind in KINDS:
            self._tokens[kind, notes.model] += getattr(notes, kind)
        if notes.generated:
            self._first.add(notes.first)
        if notes.generated > 1:
            self._between.add(notes.decoding / (notes.generated - 1))

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        return PlainTextResponse("\n".join(self._lines()) + "\n", media_type="text/plain; version=0.0.4")

    def _lines(self) -> Iterator[str]:
        yield "# TYPE edgellm_requests_total counter"
        for (status, model), count in sorted(self._requests.items()):
            yield f'edgellm_requests_total{{status="{status}",model="{_label(model)}"}} {count}'
        yield "# TYPE edgellm_tokens_total counter"
        for (kind, model), count in sorted(self._tokens.items()):
            yield f'edgellm_tokens_total{{kind="{kind}",model="{_label(model)}"}} {count}'
        yield from self._first.lines("edgellm_time_to_first_token_seconds")
        yield from self._between.lines("edgellm_inter_token_seconds")
        for name in ("running", "waiting", "parallel"):
            yield f"# TYPE edgellm_{name} gauge"
            for loaded in self._models.loaded.values():
                yield f'edgellm_{name}{{model="{_label(loaded.name)}"}} {getattr(loaded.model.load_stats(), name)}'
        yield from self._llama_servers()

    def _llama_servers(self) -> Iterator[str]:
        """Of all models together, under llama-server's names, which dashboards read."""
        tokens = {kind: sum(count for (each, _), count in self._tokens.items() if each == kind) for kind in KINDS}
        stats = [loaded.model.load_stats() for loaded in self._models.loaded.values()]
        values = {
            "prompt_tokens_total": tokens["prompt"] - tokens["cached"],
            "tokens_predicted_total": tokens["generated"],
            "requests_processing": sum(each.running for each in stats),
            "requests_deferred": sum(each.waiting for each in stats),
        }
        for name, value in values.items():
            yield f"# TYPE llamacpp:{name} {'counter' if name.endswith('_total') else 'gauge'}"
            yield f"llamacpp:{name} {value}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
