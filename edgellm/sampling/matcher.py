"""llguidance through its C functions, which let other threads run meanwhile; through its Python classes where it exports none."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Protocol

from edgellm.errors import SchemaError

MESSAGE, INIT = 4096, 1024  # bytes: of an error, and for LlgConstraintInit as later versions may have it
CHUNK = 10_000  # tokens
MAX_KEPT = 16  # compiled grammars
SPECIAL = b"\xff"  # before the text of a control token
# Name, result and arguments of each function that is used.
FUNCTIONS = (
    ("llg_new_tokenizer_v2", c_void_p, (c_void_p, c_char_p, c_size_t)),
    ("llg_free_tokenizer", None, (c_void_p,)),
    ("llg_tokenize_bytes", c_size_t, (c_void_p, c_char_p, c_size_t, POINTER(c_uint32), c_size_t)),
    ("llg_constraint_init_set_defaults", None, (c_void_p, c_void_p)),
    ("llg_validate_grammar", c_int32, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    ("llg_new_matcher", c_void_p, (c_void_p, c_char_p, c_char_p)),
    ("llg_clone_matcher", c_void_p, (c_void_p,)),
    ("llg_free_matcher", None, (c_void_p,)),
    ("llg_matcher_compute_mask_into", c_int32, (c_void_p, c_void_p, c_size_t)),
    ("llg_matcher_consume_token", c_int32, (c_void_p, c_uint32)),
    ("llg_matcher_consume_tokens", c_int32, (c_void_p, POINTER(c_uint32), c_size_t)),
    ("llg_matcher_validate_tokens", c_int32, (c_void_p, POINTER(c_uint32), c_size_t)),
    ("llg_matcher_rollback", c_int32, (c_void_p, c_size_t)),
    ("llg_matcher_is_accepting", c_bool, (c_void_p,)),
    ("llg_matcher_is_stopped", c_bool, (c_void_p,)),
    ("llg_matcher_is_error", c_bool, (c_void_p,)),
    ("llg_matcher_get_error", c_char_p, (c_void_p,)),
)


class Matcher(Protocol):
    """A grammar that follows an answer."""

    def unsafe_compute_mask_ptr(self, address: int, n_bytes: int) -> None: ...
    def consume_token(self, token: int) -> bool: ...
    def validate_tokens(self, tokens: list[int]) -> int: ...
    def try_consume_tokens(self, tokens: list[int]) -> int: ...
    def rollback(self, n: int) -> bool: ...
    def is_accepting(self) -> bool: ...
    def is_stopped(self) -> bool: ...
    def is_error(self) -> bool: ...
    def get_error(self) -> str: ...
    def deep_copy(self) -> Matcher: ...


class TokenTree(Protocol):
    """A vocabulary from which matchers are made."""

    def matcher(self, grammar: str) -> Matcher: ...

    def tokenize(self, text: bytes) -> list[int]:
        """Tokens that have these bytes."""
        ...

    def check(self, grammar: str) -> tuple[bool, str]:
        """True if llguidance refuses a grammar that names tokens, with its message."""
        ...


def token_tree(
    pieces: Sequence[bytes], ends: Collection[int], control: Collection[int], tokenize: Callable[[str], list[int]]
) -> TokenTree:
    """The tree of a vocabulary. Raises SchemaError."""
    functions = _functions()
    if functions is None:
        return _Compiled(_PythonTree(pieces, ends, control, tokenize))
    return _Compiled(_Tree(functions, pieces, ends, control))


class _Compiled:
    """A tree that keeps the grammars it was last asked for."""

    def __init__(self, tree: TokenTree) -> None:
        self._tree, self._lock, self._kept = tree, threading.Lock(), OrderedDict[str, Matcher]()
        self.tokenize, self.check = tree.tokenize, tree.check

    def matcher(self, grammar: str) -> Matcher:
        with self._lock:
            if grammar not in self._kept:
                self._kept[grammar] = self._tree.matcher(grammar)
            self._kept.move_to_end(grammar)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return self._kept[grammar].deep_copy()


@cache
def _functions() -> ctypes.CDLL | None:
    """llguidance's library; None where it does not export its C functions."""
    from llguidance import _lib

    try:
        library = ctypes.CDLL(_lib.__file__)
        for name, result, arguments in FUNCTIONS:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


class _TokenizerInit(ctypes.Structure):
    """LlgTokenizerInitV2 of llguidance.h; `struct_size` says how much of it there is."""

    _fields_ = [  # as ctypes wants it
        ("struct_size", c_size_t),
        ("vocab_size", c_uint32),
        ("tok_eos", c_uint32),
        ("token_lens", c_void_p),
        ("token_bytes", c_char_p),
        ("tokenizer_json", c_char_p),
        ("tokenize_assumes_string", c_bool),
        ("tokenize_fn", c_void_p),
        ("use_approximate_greedy_tokenize_fn", c_bool),
        ("tokenize_user_data", c_void_p),
        ("slices", POINTER(c_char_p)),
        ("tok_eos_extra", POINTER(c_uint32)),
        ("tok_eos_extra_count", c_uint32),
    ]


class _Tree:
    """See TokenTree."""

    def __init__(self, library: ctypes.CDLL, pieces: Sequence[bytes], ends: Collection[int], control: Collection[int]) -> None:
        from llguidance import LLTokenizer

        special, lengths, data = set(control), (c_uint32 * len(pieces))(), bytearray()
        first, *others = sorted(ends)
        for at in range(0, len(pieces), CHUNK):  # which no other thread waits for, nor for a garbage collector in a long list
            tokens = range(at, min(at + CHUNK, len(pieces)))
            texts = [SPECIAL + piece if token in special and (piece := pieces[token]) else pieces[token] for token in tokens]
            lengths[at : at + CHUNK] = [*map(len, texts)]
            data += b"".join(texts)
        slices = [each.encode() for each in LLTokenizer.json_slices()]
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=len(pieces),
            tok_eos=first,
            token_lens=ctypes.addressof(lengths),
            token_bytes=bytes(data),
            use_approximate_greedy_tokenize_fn=True,
            slices=(c_char_p * (len(slices) + 1))(*slices, None),
            tok_eos_extra=(c_uint32 * len(others))(*others),
            tok_eos_extra_count=len(others),
        )
        message = ctypes.create_string_buffer(MESSAGE)
        self.library, self._tokenizer = library, library.llg_new_tokenizer_v2(ctypes.byref(init), message, MESSAGE)
        if not self._tokenizer:
            raise SchemaError(f"the vocabulary cannot be constrained ({message.value.decode(errors='replace')[:200]}).")
        self._init = ctypes.create_string_buffer(INIT)
        library.llg_constraint_init_set_defaults(self._init, self._tokenizer)
        ctypes.memset(ctypes.addressof(self._init) + ctypes.sizeof(c_void_p) + 4, 0, 4)  # log_stderr_level

    def matcher(self, grammar: str) -> Matcher:
        return _Matcher(self, self.library.llg_new_matcher(self._init, b"llguidance", grammar.encode()))

    def tokenize(self, text: bytes) -> list[int]:
        found = (c_uint32 * (len(text) + 1))()
        return [*found[: self.library.llg_tokenize_bytes(self._tokenizer, text, len(text), found, len(found))]]

    def check(self, grammar: str) -> tuple[bool, str]:
        message = ctypes.create_string_buffer(MESSAGE)
        found = self.library.llg_validate_grammar(self._init, b"llguidance", grammar.encode(), message, MESSAGE)
        return found < 0, message.value.decode(errors="replace") if found else ""

    def __del__(self) -> None:
        if getattr(self, "_tokenizer", None):
            self.library.llg_free_tokenizer(self._tokenizer)


class _Matcher:
    """See Matcher."""

    def __init__(self, tree: _Tree, handle: int) -> None:
        self._tree, self._library, self._handle = tree, tree.library, handle  # the tree outlives its matchers

    def unsafe_compute_mask_ptr(self, address: int, n_bytes: int) -> None:
        self._library.llg_matcher_compute_mask_into(self._handle, address, n_bytes)

    def consume_token(self, token: int) -> bool:
        return bool(self._library.llg_matcher_consume_token(self._handle, token) == 0)

    def validate_tokens(self, tokens: list[int]) -> int:
        return int(self._library.llg_matcher_validate_tokens(self._handle, (c_uint32 * len(tokens))(*tokens), len(tokens)))

    def try_consume_tokens(self, tokens: list[int]) -> int:
        n = max(0, self.validate_tokens(tokens))
        return n if not n or self._library.llg_matcher_consume_tokens(self._handle, (c_uint32 * n)(*tokens[:n]), n) == 0 else 0

    def rollback(self, n: int) -> bool:
        return bool(self._library.llg_matcher_rollback(self._handle, n) == 0)

    def is_accepting(self) -> bool:
        return bool(self._library.llg_matcher_is_accepting(self._handle))

    def is_stopped(self) -> bool:
        return bool(self._library.llg_matcher_is_stopped(self._handle))

    def is_error(self) -> bool:
        return bool(self._library.llg_matcher_is_error(self._handle))

    def get_error(self) -> str:
        return (self._library.llg_matcher_get_error(self._handle) or b"").decode(errors="replace")

    def deep_copy(self) -> Matcher:
        return _Matcher(self._tree, self._library.llg_clone_matcher(self._handle))

    def __del__(self) -> None:
        self._library.llg_free_matcher(self._handle)


class _PythonTree:
    """See TokenTree."""

    bos_token_id = None

    def __init__(
        self, pieces: Sequence[bytes], ends: Collection[int], control: Collection[int], tokenize: Callable[[str], list[int]]
    ) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self.tokens, self.eos_token_id, self.special_token_ids = pieces, min(ends), sorted(control)
        self._tokenize = tokenize
        self._tree = LLTokenizer(
            TokenizerWrapper(self), n_vocab=len(pieces), eos_token=sorted(ends), slices=LLTokenizer.json_slices()
        )

    def __call__(self, text: str) -> list[int]:
        return self._tokenize(text)

    def matcher(self, grammar: str) -> Matcher:
        from llguidance import LLMatcher

        return LLMatcher(self._tree, grammar, log_level=0)

    def tokenize(self, text: bytes) -> list[int]:
        return self._tree.greedy_tokenize(text.decode(errors="replace"))

    def check(self, grammar: str) -> tuple[bool, str]:
        from llguidance import LLMatcher

        wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, self._tree)
        return wrong, "\n".join(messages)
