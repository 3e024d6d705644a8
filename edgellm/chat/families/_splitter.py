"""Finds the calls in an answer while it is written; what begins like one and is none comes out as text: nothing gets lost."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any  # options of several types

from edgellm.chat.families._format import Format, Partials, Segment, plain
from edgellm.chat.families._openings import Openings, ways
from edgellm.chat.families._partial import Partial
from edgellm.chat.families._reading import Cut, unclosed
from edgellm.chat.families._strays import python_lines
from edgellm.chat.schemas import variants
from edgellm.chat.tools import Call, CallDelta, Tool, ToolCall, is_finite, json_of

MAX_BROKEN = 20_000_000  # what blocks that were no calls may cost, before an answer is text
MAX_ENDS = 500  # of calls without a closer
MAX_CLOSERS = 8  # at which a block may end whose last brackets are missing


class CallSplitter:
    """Tells text from calls, piece by piece. `thinking`: the text is thinking, in which openers count and nothing else."""

    def __init__(self, format: Format, tools: Sequence[Tool]) -> None:
        self._tools = plain(tools)
        self._openings = Openings((*ways(format, self._tools), python_lines(self._tools)))
        self.thinking = False
        self._format = format  # of the block
        self._held = ""  # may still become an opener
        self._block: str | None = None  # since an opener, which it begins with
        self._opener = ""
        self._tried = 0  # where the block's next closer is looked for
        self._needs = ""  # what comes before that closer
        self._begun = False  # something other than white space was said
        self._line = ""  # what was said on the line that is being written
        self._code = False  # it is in a fence of code
        self._after: tuple[str, ...] = ()  # marks that go if they come next
        self._ids = set[str]()
        self._broken = 0  # what it cost to parse blocks that were no calls
        self._found: list[Segment] = []
        self._calls = 0  # that were returned
        self._begun_calls: list[tuple[str, Partial | None]] = []  # ids and what was returned of the block's calls
        self._looked = 0  # at so many characters of its block

    def restart(self) -> None:
        """The answer begins here: what came before was thinking."""
        self._begun, self._line = False, ""

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """The text and the calls that are certain by now."""
        return _apart(self.segments(text))

    def flush(self) -> tuple[str, list[ToolCall]]:
        """The rest at the end of the answer; of a block that is cut, the calls before the one that is."""
        return _apart(self.rest())

    def segments(self, text: str) -> list[Segment]:
        """The text and the calls that are certain by now, in their order."""
        if self._block is not None:
            self._block += text
        else:
            self._held += text
        self._read()
        self._report_begun()
        found, self._found = self._found, []
        return found

    def _report_begun(self) -> None:
        """The new parts of the calls that are being written."""
        block, read = self._block, self._format.partial
        if block is None or read is None or len(block) < self._looked + max(1, self._looked // 64):
            return
        self._looked = len(block)
        try:
            for k, partial in enumerate(self._written(block, read)):
                self._report(k, partial)
        except (ValueError, RecursionError):  # JSON that is none
            return

    def _written(self, block: str, read: Partials) -> Iterator[Partial]:
        """The calls of a block that is being written: those that are complete, and the one that is not."""
        body = block[len(self._opener) :]
        first = read(block if self._format.whole_body else body, self._tools)
        if first is None:
            return
        before = self._begun_calls[0][1] if self._begun_calls else None
        if before is None or not (before.closed or before.json == first.json):
            yield first  # the others are looked for where nothing is new of it
            return
        try:
            self._format.parse(block if self._format.keeps_opener else body, self._tools)
        except Cut as cut:
            complete, at = [*cut.calls], cut.at
        except (ValueError, RecursionError):
            complete, at = [], 0
        else:
            complete, at = [], 0  # the block ends here, or it is none
        for call in complete:
            settled = all(len(variants(tool.name, tool.parameters)) == 1 for tool in self._tools if tool.name == call.name)
            yield Partial(call.name, dict(call.arguments), closed=settled)
        rest = (block if self._format.keeps_opener else body)[at:]
        if partial := read(rest, self._tools) if complete else first:
            yield partial

    def _report(self, k: int, partial: Partial) -> None:
        """A delta with the new part of the k-th call of the block."""
        if all(tool.name != partial.name for tool in self._tools):
            raise ValueError("is no tool")
        if k == len(self._begun_calls):
            self._begun_calls.append((uuid.uuid4().hex[:9], None))
        number, before = self._begun_calls[k]
        text, reported = partial.json, before.json if before is not None else ""
        if text.startswith(reported) and len(text) > len(reported):
            self._found.append(CallDelta(self._calls + k, number, partial.name, text[len(reported) :]))
            self._begun_calls[k] = number, partial

    def rest(self) -> list[Segment]:
        """As `flush`, in their order."""
        while self._block is not None:
            rest, self._block = self._block[len(self._opener) :], None
            found = self._parsed(rest)
            if isinstance(found, Cut):
                completed, behind = self._completed(rest)
                found, rest = (completed, behind) if completed else self._whole(found, rest)
            elif found:
                rest = ""
            if not found:
                found, rest = self._unclosed(rest)
            if not found and self._format.parse_last is not None:
                self._format = replace(self._format, parse=self._format.parse_last)
                found, rest = self._unclosed(rest)
                closer = next((closer for closer in self._format.closers if rest.lstrip().startswith(closer)), "")
                rest = rest.lstrip().removeprefix(closer) if found else rest
            if not found:
                self._say(self._opener)
                if not self._opener and rest:  # told by its form, which would be found again
                    self._say(rest[0])
                    rest = rest[1:]
            self._called(found)
            self._held = rest
            self._read()
        held, self._held = self._held, ""
        if not any(mark.startswith(held.strip()) for mark in self._after if held.strip()):
            self._say(held)
        found_all, self._found = self._found, []
        return found_all

    def _read(self) -> None:
        while True:
            if self._block is None:
                self._text()
            if self._block is None or (found := self._closed()) is None:
                return
            if not found:  # the opener was text; what follows may hold calls all the same
                n = max(1, len(self._opener))
                opener, self._held, self._block = self._block[:n], self._block[n:], None
                self._say(opener)
            self._called(found)

    def _called(self, calls: Sequence[ToolCall]) -> None:
        begun, self._begun_calls, self._looked = self._begun_calls, [], 0
        for k, call in enumerate(calls):
            before = begun[k][1] if k < len(begun) else None
            text = json_of(call.arguments)
            if rest := before.rest(text) if before is not None else text:
                self._found.append(CallDelta(self._calls + k, call.id, call.name, rest))
            self._found.append(call)
        self._calls += max(len(calls), len(begun))  # some that were begun are none in the end
        if calls:
            self._after, self._line = self._format.follows, ""

    def _whole(self, cut: Cut, body: str) -> tuple[list[ToolCall], str]:
        """The calls of a block that are complete, and the rest of it, but for a closer that is cut."""
        try:
            found = self._identified([*cut.calls])
        except (ValueError, RecursionError):
            found = []
        if found:
            body = body[cut.at - len(self._opener) * self._format.keeps_opener :]
        closes = found and any(closer.startswith(body) for closer in self._format.closers)
        return found, "" if closes else body

    def _unclosed(self, body: str) -> tuple[list[ToolCall], str]:
        """The calls of a block that text follows in the place of its closer, and that text."""
        ends = {match.end() for end in self._format.ends for match in re.finditer(re.escape(end), body)}
        for end in sorted(ends, reverse=True)[-MAX_ENDS:]:
            rest = body[end:].lstrip()
            if (more := self._format.continues) and rest and (rest.startswith(more) or more.startswith(rest)):
                break  # a call that is cut
            found = self._parsed(body[:end])
            if found and not isinstance(found, Cut):
                return found, body[end:]
        return [], body

    def _completed(self, body: str) -> tuple[list[ToolCall], str]:
        """The calls of a block that leaves out its last brackets, and what follows it. Without a closer its arguments are whole."""
        marks = [re.escape(mark) for mark in (*self._format.closers, *self._format.follows) if mark not in "}]\n"]
        begin = max(0, body.find("{"))  # behind a fence that opens the block
        ends = re.compile("|".join([*marks, r"\Z"])).finditer(body, begin)
        for end in islice(ends, MAX_CLOSERS):
            written = body[: end.start()].rstrip()
            missing = unclosed(self._opener * self._format.keeps_opener + written)
            if not missing or not (end[0] or (written.endswith("}") and missing in ("}", "]", "}]"))):
                continue  # it stands within an argument
            found = self._parsed(written + missing)
            known = not isinstance(found, Cut) and all(any(tool.name == call.name for tool in self._tools) for call in found)
            return (found, body[end.end() :]) if found and known and not isinstance(found, Cut) else ([], body)
        return [], body

    def _text(self) -> None:
        """The text before the next opening; then the block begins."""
        if self._broken > MAX_BROKEN:
            held, self._held = self._held, ""
            self._say(held)
            return
        if self._after:
            bare = self._held.lstrip()
            if any(mark.startswith(bare) and mark != bare for mark in self._after):
                return
            mark = next((mark for mark in self._after if bare.startswith(mark)), "")
            self._after, self._held = (), bare[len(mark) :] if mark else self._held
        said: dict[str, Any] = {"begun": self._begun, "mid_line": bool(self._line.strip()), "code": self._code, "line": self._line}
        held, opening = self._held, self._openings.find(self._held, thinking=self.thinking, **said)
        if opening is not None:
            self._opener, self._format, self._begun_calls, self._looked = opening.opener, opening.format, [], 0
            self._block, self._held, self._tried, self._needs = held[opening.at :], "", len(self._opener), ""
            self._say(held[: opening.at])
            return
        keep = self._openings.kept(held, thinking=self.thinking, **said)
        self._held = held[len(held) - keep :] if keep else ""
        self._say(held[: len(held) - keep])

    def _say(self, text: str) -> None:
        if text:
            self._begun = self._begun or bool(text.strip())
            *lines, line = (self._line + text).split("\n")
            self._code ^= sum(each.lstrip().startswith("```") for each in lines) % 2 == 1
            self._line = line[:100]
            if self._found and isinstance(self._found[-1], str):
                self._found[-1] += text
            else:
                self._found.append(text)

    def _closed(self) -> list[ToolCall] | None:
        """The calls of the block, if it is complete; what follows it is held. None as long as it is not, [] if it is text."""
        assert self._block is not None
        begun = self._block[len(self._opener) :].lstrip()
        self._format = self._format.suited(begun)
        if begun and self._format.first and begun[0] not in self._format.first:
            return []
        while self._broken <= MAX_BROKEN:
            marks = (self._needs,) if self._needs else self._format.closers
            ends = [(at, mark) for mark in marks if (at := self._block.find(mark, self._tried)) >= 0]
            if not ends:
                self._tried = max(self._tried, len(self._block) - max(map(len, marks), default=1) + 1)
                return None
            end, mark = min(ends)
            if self._needs:
                self._tried, self._needs = end + len(mark), ""
                continue
            found = self._parsed(self._block[len(self._opener) : end + len(mark) * self._format.keeps_closer])
            rest = ""
            if (found.broken if isinstance(found, Cut) else not found) and not self._format.keeps_closer:
                unclosed, rest = self._unclosed(self._block[len(self._opener) : end])
                found = unclosed or found
            if not isinstance(found, Cut):
                if found:
                    self._held, self._block = rest + self._block[end + len(mark) :], None
                return found
            # The closer may stand within an argument.
            self._tried, self._needs = (end, found.needs) if found.needs else (end + 1, "")
        return []

    def _parsed(self, body: str) -> list[ToolCall] | Cut:
        """The calls of a block, [] if it is text whatever follows."""
        if self._broken > MAX_BROKEN:
            return []
        found: list[ToolCall] | Cut = []
        try:
            calls = self._format.parse(self._opener + body if self._format.keeps_opener else body, self._tools)
            if found := self._identified(calls or ()):
                return found
        except Cut as cut:
            found = cut
        except (ValueError, RecursionError):  # JSON that is none
            found = Cut(broken=True)
        self._broken += self._format.cost(body)
        return found

    def _named(self, name: str) -> str:
        """A tool's name without the prefix that models of other formats put before it."""
        known, bare = {tool.name for tool in self._tools}, name.removeprefix("functions.")
        return bare if name not in known and bare in known else name

    def _identified(self, calls: Sequence[Call | ToolCall]) -> list[ToolCall]:
        """With ids that no other call of the answer has; none where one has a number that JSON cannot have."""
        if not all(is_finite(call.arguments) for call in calls):
            return []
        found = list[ToolCall]()
        for call in calls:
            given = call.id if isinstance(call, ToolCall) and call.id not in self._ids else uuid.uuid4().hex[:9]
            begun = self._begun_calls[len(found)][0] if len(found) < len(self._begun_calls) else given
            call = ToolCall(self._named(call.name), json.loads(json_of(call.arguments)), begun)
            self._ids.add(call.id)
            found.append(call)
        return found


def _apart(segments: Sequence[Segment]) -> tuple[str, list[ToolCall]]:
    return "".join(each for each in segments if isinstance(each, str)), [each for each in segments if isinstance(each, ToolCall)]
