"""Encodes by the tokenizers library, for folders whose tokenizer.json has steps that no encoder here knows."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any  # Any: the library's object, made of foreign JSON

from edgellm.errors import BadVocab
from edgellm.tokenizer.encoders import Encoder
from edgellm.tokenizer.pre_tokenizers import check_expressions


class LibraryEncoder:
    """`settings`: a tokenizer.json, as JSON, without its control tokens. `kind`: the encoder whose tokens these are."""

    def __init__(self, settings: str, kind: Encoder, file: str) -> None:
        self.spelling, self.space_prefix = kind.spelling, kind.space_prefix
        self._settings, self._file = settings, file
        self._library: Any = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        from tokenizers import Tokenizer

        with self._lock:
            if self._library is not None:
                return
            try:
                settings = json.loads(self._settings)
                check_expressions([settings["normalizer"], settings["pre_tokenizer"]])
                self._library = Tokenizer.from_str(self._settings)
            except Exception as error:  # the library raises no narrower class
                raise BadVocab(
                    f"the tokenizers library refuses it: {str(error)[:200]}; download the folder again", file=self._file
                ) from error

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._library is None:
            self.prepare()
        return [each.ids for each in self._library.encode_batch(list(texts), add_special_tokens=False)]
