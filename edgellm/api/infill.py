"""Options of filling in the middle, and the prompt that they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgellm.api.generation_options import GenerationKeywords
from edgellm.errors import OptionError
from edgellm.loading.loaded import LoadedModel
from edgellm.tokenizer.fill_in import FillIn, encode_fill_in, format_of

Files = Mapping[str, str] | Sequence[tuple[str, str]]  # paths and texts


class InfillKeywords(GenerationKeywords, total=False):
    """The options of `infill`."""

    files: Files  # others of the repository, the most important last
    path: str | None  # of the file with the gap
    repository: str | None  # its name


def prompt(model: LoadedModel, prefix: str, suffix: str, options: InfillKeywords) -> tuple[list[int], int]:
    """Token ids for what stands between two texts, and how many tokens of these did not fit. Raises OptionError, NoTokenizer."""
    asked = _checked(prefix, suffix, options)
    form = format_of(model.tokenizer)
    if form is None:
        raise OptionError(
            f"{model.path.name} has no tokens for filling in the middle; take a model for code, such as Qwen2.5-Coder."
        )
    limit = options.get("max_tokens")
    answer = min(limit, model.context // 2) if isinstance(limit, int) else model.context // 4
    return encode_fill_in(model.tokenizer, form, asked, model.context - answer)


def _checked(prefix: str, suffix: str, options: InfillKeywords) -> FillIn:
    path, repository, files = options.get("path") or "", options.get("repository") or "", options.get("files") or ()
    for name, text in (("prefix", prefix), ("suffix", suffix), ("path", path), ("repository", repository)):
        if not isinstance(text, str):
            raise OptionError("is not a text", option=name, value=text, advice="give a str")
    pairs = list(files.items()) if isinstance(files, Mapping) else files
    if isinstance(pairs, str) or not isinstance(pairs, Sequence) or not all(map(_is_file, pairs)):
        raise OptionError(option="files", value=files, advice="give a mapping of paths to texts, or a list of (path, text)")
    return FillIn(prefix, suffix, [(name, text) for name, text in pairs], path, repository)


def _is_file(pair: object) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
