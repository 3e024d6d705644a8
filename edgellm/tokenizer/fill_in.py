"""Prompts for filling in the middle: where each family of code models wants prefix, suffix and other files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgellm.tokenizer.tokenizer import Tokenizer

ROLE = re.compile(r"\[(prefix|suffix|middle|repository|separator)\]")


@dataclass(frozen=True, slots=True)
class FillInFormat:
    """Parts of a prompt, in their order; a role in brackets is its token."""

    repository: str = ""
    file: str = "[separator]{path}\n{text}\n"
    path: str = "[separator]{path}\n"  # of the file that is written
    within: str = ""  # the same, at the beginning of its prefix
    files_within: bool = False  # other files are in the prefix too
    fill: str = "[prefix]{prefix}[suffix]{suffix}[middle]"


USUAL = FillInFormat()
BY_SEPARATOR: Mapping[str | None, FillInFormat] = {
    None: FillInFormat("", "#{path}\n{text}\n", "", within="#{path}\n", files_within=True),  # DeepSeek-Coder's README
    "<|file_sep|>": replace(USUAL, repository="[repository]{name}\n"),  # Qwen2.5-Coder Technical Report, 3.2
    # StarCoder 2, 5.1
    "<file_sep>": FillInFormat("[repository]{name}", "[separator]{path}\n{text}", "[separator]", within="{path}\n"),
    "<filename>": replace(USUAL, repository="[repository]{name}"),  # StarCoder and Granite code
    "<|filename|>": replace(USUAL, repository="[repository]{name}"),  # Granite 4
    "<|file_separator|>": FillInFormat("", "{path}\n{text}[separator]", "{path}\n"),  # CodeGemma
}
BY_PREFIX = {  # the texts of prefix tokens whose families have another order
    "[PREFIX]": "[suffix]{suffix}[prefix]{prefix}",  # Codestral
    "<[fim-prefix]>": "[suffix]{suffix}[prefix]{prefix}[middle]",  # Seed-Coder
}


@dataclass(frozen=True, slots=True)
class FillIn:
    """A file with a gap, and the others of its repository as (path, text), the most important last."""

    prefix: str
    suffix: str
    files: Sequence[tuple[str, str]] = ()
    path: str = ""
    repository: str = ""


def format_of(tokenizer: Tokenizer) -> FillInFormat | None:
    """The format of a vocabulary's family; None where it has no tokens for filling in."""
    texts = {role: tokenizer.token_text(token) for role, token in tokenizer.fill_in_ids.items()}
    found = BY_SEPARATOR.get(texts.get("separator"), USUAL)
    found = replace(
        found, repository=found.repository if "repository" in texts else "", fill=BY_PREFIX.get(texts.get("prefix", ""), found.fill)
    )
    return found if texts.keys() >= {*ROLE.findall(found.fill)} else None


def encode_fill_in(tokenizer: Tokenizer, form: FillInFormat, asked: FillIn, room: int) -> tuple[list[int], int]:
    """The prompt's token ids. Where they are more than `room`, files are left out, from the first one on; then the prefix loses
    its beginning and the suffix its end: so many tokens, the second result.
    """
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    if asked.repository:
        begin += _ids(tokenizer, form.repository, {"name": asked.repository})
    named = _ids(tokenizer, form.path, {"path": asked.path}) if asked.path else []
    lead = form.within.format(path=asked.path) if asked.path else ""
    suffix = tokenizer.encode_continuation(asked.suffix)
    room -= len(begin) + len(named) + len(ROLE.findall(form.fill))
    used = len(suffix) + len(tokenizer.encode(lead + asked.prefix, add_special=False))
    files = [(path, text.removesuffix("\n") if form.file.endswith("\n") else text) for path, text in asked.files]
    encoded = [_ids(tokenizer, form.file, {"path": path, "text": text}) for path, text in files]
    left_out = 0
    while encoded and used + sum(map(len, encoded)) > room:
        left_out += len(encoded[0])
        del encoded[0], files[0]
    if form.files_within:
        lead = "".join(form.file.format(path=path, text=text) for path, text in files) + lead
        encoded = []
    # SentencePiece puts a space before a prefix, and none before a suffix.
    prefix = tokenizer.encode(lead + asked.prefix, add_special=False)
    room = max(room - sum(map(len, encoded)), 0)
    if len(prefix) + len(suffix) > room:
        left_out += len(prefix) + len(suffix) - room
        suffix = suffix[: max(room // 4, room - len(prefix))]
        prefix = prefix[max(len(prefix) + len(suffix) - room, 0) :]
    filled = _ids(tokenizer, form.fill, {"prefix": prefix, "suffix": suffix})
    return [*begin, *(token for ids in encoded for token in ids), *named, *filled], left_out


def _ids(tokenizer: Tokenizer, template: str, values: Mapping[str, str | list[int]]) -> list[int]:
    """Ids of a part: tokens of roles, and texts with values in their places; values that are ids already stand alone."""
    ids = list[int]()
    for index, part in enumerate(ROLE.split(template)):
        value = values.get(part.strip("{}"))
        if index % 2:
            ids.append(tokenizer.fill_in_ids[part])
        elif isinstance(value, list):
            ids += value
        elif part:
            ids += tokenizer.encode_continuation(part.format(**values))
    return ids
