"""Tools as functions: arguments come in the types of annotations, results leave as JSON, rounds stream and are counted."""

from __future__ import annotations

import asyncio
import datetime
import enum
import functools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic
import pytest
from call_formats import TEMPLATE, Begins, template
from tiny_models import tiny_model

import edgellm
from edgellm.api.forms.docstrings import parsed
from edgellm.api.forms.typed import typed
from edgellm.api.records import Generation
from edgellm.api.rounds import Rounds, RoundStream, arguments_for, in_loop, result_text
from edgellm.api.tools import Toolbox, toolbox
from edgellm.chat.tools import ToolCall
from edgellm.errors import OptionError

ASK = [{"role": "user", "content": "hello"}]


def weather(city: Literal["Rome", "Oslo"], days: int = 1) -> str:
    """The weather of a city."""
    return f"{city}: sun for {days} days"


def generation(text: str, *calls: ToolCall) -> Generation:
    return Generation(text, (), "eog", edgellm.Stats(0, 0, 0, 0, 0, 0, 0), 0, tool_calls=calls)


class Written:
    """A stream that has ended."""

    def __init__(self, result: Generation) -> None:
        self.result = result

    def drain(self) -> Generation:
        return self.result


def run_rounds(ask: Callable[[list[Any]], Generation], messages: list[Any], box: Toolbox, limit: int) -> Generation:
    rounds = Rounds(messages, box, limit)
    return RoundStream(rounds, lambda: Written(ask(rounds.messages))).drain()  # type: ignore[arg-type, return-value]  # all it needs


def test_calls_are_carried_out_until_there_are_none() -> None:
    box = toolbox([weather, {"name": "outside"}], template("<tool_call>"))
    assert box is not None
    script = [
        generation("Hm.", ToolCall("weather", {"city": "Rome", "days": 2}, "1"), ToolCall("gone", {}, "2")),
        generation("", ToolCall("weather", {"town": "Rome"}, "3")),
        generation("Sunny."),
    ]
    asked: list[Any] = []

    def ask(messages: list[Any]) -> Generation:
        asked.append(messages)
        return script[len(asked) - 1]

    answer = run_rounds(ask, ASK, box, 10)
    assert answer.text == "Sunny." and len(asked) == 3 and asked[-1] == [*ASK, *answer.messages]
    results = [message["content"] for message in answer.messages if message["role"] == "tool"]
    assert results[0] == "Rome: sun for 2 days" and results[1].startswith("error: there is no tool gone")
    assert (
        results[2].startswith("error: 'city' is a required property")
        and answer.messages[0]["tool_calls"][0]["function"]["arguments"]["days"] == 2
    )
    json.dumps(answer.messages)


def test_what_was_thought_stays_between_rounds() -> None:
    box = toolbox([weather], template("<tool_call>"))
    assert box is not None
    script = [replace(generation("", ToolCall("weather", {"city": "Rome"}, "1")), thinking="Hm."), generation("Sunny.")]
    answer = run_rounds(lambda messages: script.pop(0), ASK, box, 10)
    assert answer.messages[0]["reasoning_content"] == "Hm."


def test_results_that_are_no_json_are_refused_in_a_sentence() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for found, why in ((float("nan"), "NaN"), ({"a": [1, -float("inf")]}, "NaN"), (endless, "Circular"), ({(1, 2): 3}, "keys")):

        def measure(found: Any = found) -> Any:
            return found

        box = toolbox([measure], template("<tool_call>"))
        assert box is not None
        with pytest.raises(OptionError, match=rf"measure returned .*, which is no JSON \(.*{why}.*\); return a text, or None for"):
            run_rounds(lambda messages: generation("", ToolCall("measure", {}, "1")), ASK, box, 10)


def test_coroutine_functions_run_in_the_callers_loop_or_in_their_own() -> None:
    async def later(city: str) -> str:
        await asyncio.sleep(0)
        return f"{city} later"

    box, call = toolbox([later], template("<tool_call>")), ToolCall("later", {"city": "Rome"}, "1")
    assert box is not None
    script = [generation("", call), generation("Done.")]
    answer = run_rounds(lambda messages: script.pop(0), ASK, box, 10)
    assert answer.text == "Done." and answer.messages[1]["content"] == "Rome later"
    rounds = Rounds(ASK, box, 1)
    asyncio.run(in_loop(rounds.carry_out(call)))
    assert rounds.messages[-1]["content"] == "Rome later"


def test_rounds_are_bounded_and_descriptions_are_the_callers_to_carry_out() -> None:
    box = toolbox([weather, {"name": "outside"}], template("<tool_call>"))
    assert box is not None
    endless = generation("", ToolCall("weather", {"city": "Rome"}, "1"))
    answer = run_rounds(lambda messages: endless, ASK, box, 3)
    assert len(answer.messages) == 6 and answer.tool_calls
    answer = run_rounds(lambda messages: generation("", ToolCall("outside", {}, "1")), ASK, box, 3)
    assert answer.messages == () and answer.tool_calls[0].name == "outside"


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Place:
    name: str
    since: datetime.date | None = None


class Person(pydantic.BaseModel):
    name: str
    born: datetime.date


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
        (datetime.datetime | None, "2024-02-29T01:02:03Z", datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)),
        (datetime.date | None, None, None),
        (Mood, "good", Mood.GOOD),
        (Literal["a", 3], 3, 3),
        (list[Mood], ["good", "bad"], [Mood.GOOD, Mood.BAD]),
        (set[int], [1, 1], {1}),
        (tuple[int, Mood], [1, "bad"], (1, Mood.BAD)),
        (dict[str, Place], {"x": {"name": "Rome"}}, {"x": Place("Rome")}),
        (Place, {"name": "Rome", "since": "0800-01-01"}, Place("Rome", datetime.date(800, 1, 1))),
        (Person, {"name": "Ada", "born": "1815-12-10"}, Person(name="Ada", born=datetime.date(1815, 12, 10))),
        (int | str, "12", "12"),
        (Path, "a/b", Path("a/b")),
        (float, 3, 3.0),
        (Any, {"a": 1}, {"a": 1}),
    ],
)
def test_arguments_come_in_the_types_of_annotations(hint: Any, value: object, wanted: object) -> None:
    found = typed(hint, value)
    assert found == wanted and type(found) is type(wanted)


def test_partials_and_callable_objects_are_tools() -> None:
    def add(a: int, b: int, when: datetime.date = datetime.date(2024, 1, 1)) -> int:
        """Adds.

        Args:
            a (int): the first,
                on two lines
            b: the second
        """
        return a + b

    class Doubles:
        """Doubles."""

        def __call__(self, x: Mood) -> str:
            return x.value * 2

    box = toolbox([functools.partial(add, b=2), Doubles()], template("<tool_call>"))
    assert box is not None and [tool.name for tool in box.tools] == ["add", "Doubles"]
    assert box.tools[0].description == "Adds." and box.tools[1].description == "Doubles."
    assert box.tools[0].parameters["properties"]["a"]["description"] == "the first, on two lines"
    assert box.tools[0].parameters["required"] == ["a"]
    assert box.functions["add"](**arguments_for(box.functions["add"], {"a": 1})) == 3
    assert box.functions["Doubles"](**arguments_for(box.functions["Doubles"], {"x": "good"})) == "goodgood"


@pytest.mark.parametrize(
    "text",
    [
        "Adds.\n\nArgs:\n    a: the first\n    b (int, optional): the second\n\nReturns:\n    c: no argument\n",
        "Adds.\n\nParameters\n----------\na : int\n    the first\nb\n    the second\n\nReturns\n-------\nint\n    the sum\n",
        "Adds.\n\n:param a: the first\n:param int b: the second\n:returns: the sum\n",
        "Adds.\n\na: the first\nb: the second",
    ],
    ids=["google", "numpy", "sphinx", "plain"],
)
def test_docstrings_describe_arguments(text: str) -> None:
    found = parsed(text)
    assert found.summary == "Adds." and {key: found.arguments.get(key) for key in "ab"} == {"a": "the first", "b": "the second"}
    assert "c" not in found.arguments


def test_results_leave_as_json() -> None:
    found = {
        "mood": Mood.GOOD,
        "place": Place("Rome"),
        "all": {3},
        "n": np.float32(0.5),
        "v": np.arange(2),
        "d": datetime.date(2024, 1, 2),
    }
    assert json.loads(result_text("f", found)) == {
        "mood": "good", "place": {"name": "Rome", "since": None}, "all": [3], "n": 0.5, "v": [0, 1], "d": "2024-01-02"
    }  # fmt: skip
    assert json.loads(result_text("f", Person(name="Ada", born=datetime.date(1815, 12, 10))))["born"] == "1815-12-10"


def test_an_exception_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    def fails(city: str) -> str:
        raise RuntimeError("no line to Rome")

    box, call = toolbox([fails], template("<tool_call>")), ToolCall("fails", {"city": "Rome"}, "1")
    assert box is not None
    script = [generation("", call), generation("Sorry.")]
    with caplog.at_level(logging.WARNING, logger="edgellm"):
        answer = run_rounds(lambda messages: script.pop(0), ASK, box, 10)
    assert [(each.call.name, str(each.error)) for each in answer.tool_errors] == [("fails", "no line to Rome")]
    assert "fails raised RuntimeError: no line to Rome" in caplog.text and "error: RuntimeError" in answer.messages[1]["content"]


def test_rounds_stream_are_counted_and_end_when_cancelled(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=1024, template=TEMPLATE + "{# <tool_call> #}"
    )
    with edgellm.load(path, context=1024) as model:
        said = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
        tokens = model.tokenizer.encode_continuation(said)

        def options() -> dict[str, Any]:
            return {
                "tools": [weather],
                "run_tools": True,
                "max_rounds": 1,
                "processors": [Begins(list(tokens))],
                "seed": 0,
                "max_tokens": 120,
            }

        whole = model.chat(ASK, **options())
        assert whole.messages[1]["content"] == "Rome: sun for 1 days"
        assert whole.stats.generated_tokens >= len(tokens) + len(whole.token_ids) and len(whole.messages) == 2
        with model.chat(ASK, stream=True, **options()) as stream:
            kinds = [event.kind for event in stream.events()]
        assert "tool_call" in kinds and kinds[-1] == "done" and kinds.count("done") == 1
        assert stream.result.messages[1]["content"] == "Rome: sun for 1 days"

        async def all_of_it() -> Generation:
            answer = await model.achat(ASK, stream=True, **options())
            assert [event.kind async for event in answer.events()][-1] == "done"
            assert answer.result.messages[1]["content"] == "Rome: sun for 1 days"
            return await model.achat(ASK, **options())

        assert asyncio.run(all_of_it()).messages[1]["content"] == "Rome: sun for 1 days"

        async def cancelled() -> Generation:
            answer = await model.achat(ASK, stream=True, **options())
            async for _ in answer:
                answer.cancel()
            return answer.result

        ended = asyncio.run(cancelled())
        assert ended.stop_reason == "cancelled" and ended.messages == ()
        with model.chat(ASK, stream=True, **options()) as stream:
            next(stream)
            stream.cancel()
            rest = list(stream)
        assert len(rest) < 3 and stream.result.stop_reason == "cancelled" and stream.result.messages == ()
