"""The numbers that shape a model, read from GGUF metadata through typed, range-checked getters."""

from __future__ import annotations

import functools

import numpy as np

from edgellm.errors import BadHParam, BadTensorInfo, BadVocab, ShapeMismatch
from edgellm.formats.gguf import GGUFFile

MAX_LAYERS = 512  # llama.cpp's limit
MAX_CONTEXT = 2**31 - 1  # positions are int32 in every file we know
NO_CONTEXT = 2**32 - 1  # what some files write for a context without a limit
MAX_ROWS = 2**31 - 1  # token ids are int32
MAX_WIDTH = 2**24  # rows of real models stay below 2**18; a wider one is damage
MAX_FACTOR = 1e6  # of everything that multiplies; real ones stay below 1,000


def architecture_of(gguf: GGUFFile) -> str:
    """`general.architecture`. Raises BadHParam."""
    name = gguf.metadata.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise BadHParam(
            "a model file must name its architecture; this one is damaged or no model", file=gguf.path, field="general.architecture"
        )
    return name


class Keys:
    """The keys of one file's architecture. Nothing is read before it is asked for; a bad value raises BadHParam.

    Each error names file, key and value. The properties are what every architecture has.
    """

    def __init__(self, gguf: GGUFFile, *, causal: bool = True) -> None:
        """`causal`: of files that do not say it. Raises BadHParam where the file names no architecture."""
        self._causal = causal
        self.architecture, self.file = architecture_of(gguf), str(gguf.path)
        self._gguf, self._metadata = gguf, gguf.metadata

    @functools.cached_property
    def n_layers(self) -> int:
        return self.integer("block_count", 1, MAX_LAYERS)

    @functools.cached_property
    def n_embd(self) -> int:
        return self.integer("embedding_length", 1, MAX_WIDTH)

    @functools.cached_property
    def context_length(self) -> int:
        """Tokens that the model was trained for."""
        return min(self.integer("context_length", 1, NO_CONTEXT), MAX_CONTEXT)

    @functools.cached_property
    def causal(self) -> bool:
        """True if a token sees only those before it; in an encoder it sees all of the text."""
        return self.flag("attention.causal", default=self._causal)

    @functools.cached_property
    def norm_epsilon(self) -> float:
        """The number that all norms of the model add to the variance."""
        rms, plain = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
        return self.number(plain if self.has(plain) and not self.has(rms) else rms, high=1.0, zero=True)

    @functools.cached_property
    def n_vocab(self) -> int:
        """Rows of the embedding, which must be as many as there are tokens. Raises BadVocab, BadTensorInfo, ShapeMismatch."""
        table = self._gguf.tensors.get("token_embd.weight")
        if table is None:
            raise BadTensorInfo(
                "the token embedding is missing; the file holds a vocabulary only or is incomplete, get the whole model",
                file=self.file,
                field="token_embd.weight",
            )
        if len(table.shape) != 2:
            raise ShapeMismatch(
                f"has shape {table.shape}; a token embedding has two dimensions", file=self.file, field="token_embd.weight"
            )
        tokens, rows = self._metadata.get("tokenizer.ggml.tokens"), int(table.shape[0])
        if not 1 <= rows <= MAX_ROWS:
            raise ShapeMismatch(f"has {rows} rows; a token embedding has one per token", file=self.file, field="token_embd.weight")
        if tokens is not None and hasattr(tokens, "__len__") and not isinstance(tokens, str):
            if len(tokens) != rows:
                raise BadVocab(
                    f"{len(tokens)} tokens, but token_embd.weight has {rows} rows; convert the model again",
                    file=self.file,
                    field="tokenizer.ggml.tokens",
                )
        elif self.integer("vocab_size", 1, 2**31, default=rows) != rows:
            raise self.bad("vocab_size", f"is not the {rows} rows of token_embd.weight")
        return rows

    def rows(self, tensor: str) -> int:
        """Rows of a matrix that the file has: of one whose number no key says."""
        shape = self._gguf.tensors[tensor].shape
        if len(shape) != 2 or not 1 <= shape[0] <= MAX_ROWS:
            raise ShapeMismatch(f"has shape {tuple(shape)}; a matrix has two dimensions", file=self.file, field=tensor)
        return int(shape[0])

    def stored_rows(self, part: str) -> int:
        """Rows of the matrices `blk.N.part.weight`, by the first layer that has them; 0 where none has."""
        shapes = (
            self._gguf.tensors[name].shape
            for layer in range(self.n_layers)
            if (name := f"blk.{layer}.{part}.weight") in self._gguf.tensors
        )
        shape = next(shapes, ())
        return int(shape[-2]) if len(shape) >= 2 and shape[-2] <= MAX_WIDTH else 0

    def bad(self, key: str, why: str) -> BadHParam:
        return BadHParam(
            f"{why}; the file is damaged or was made by a faulty converter", file=self.file, field=f"{self.architecture}.{key}"
        )

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._metadata

    def _value(self, key: str) -> object:
        return self._metadata.get(f"{self.architecture}.{key}")

    def integer(self, key: str, low: int, high: int, *, default: int | None = None) -> int:
        """An integer in low..high."""
        value = self._value(key)
        return default if value is None and default is not None else self._integer(key, value, low, high)

    def per_layer(
        self, key: str, low: int = 1, high: int = MAX_WIDTH, *, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """One integer in low..high for each layer: the file has a value per layer, or a single one for all."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, np.ndarray):
            return (self._integer(key, value, low, high),) * self.n_layers
        if value.size != self.n_layers:
            raise self.bad(key, f"{value.size} values for {self.n_layers} layers")
        return tuple(self._integer(key, each, low, high) for each in value)

    def _integer(self, key: str, value: object, low: int, high: int) -> int:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise self.bad(key, "is missing" if value is None else f"{_shown(value)} is not an integer")
        if not low <= int(value) <= high:
            raise self.bad(key, f"{_shown(value)} is not in {low}..{high}")
        return int(value)

    def number(
        self, key: str, *, default: float | None = None, above: float = 0.0, high: float = MAX_FACTOR, zero: bool = False
    ) -> float:
        """A float above `above` (or 0, where `zero`) and at most `high`."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, (float, np.floating)):
            raise self.bad(key, "is missing" if value is None else f"{_shown(value)} is not a floating-point number")
        if not above < value <= high and not (zero and value == 0):
            raise self.bad(key, f"{value} is not above {above:g} and at most {high:g}")
        return float(value)

    def shared_per_layer(self, key: str) -> tuple[float, ...]:
        """A float for each layer under a key without the architecture's name; one value may serve all."""
        value = self._metadata.get(key)
        values = np.atleast_1d(np.asarray(value if isinstance(value, (float, np.floating, np.ndarray)) else np.nan))
        if values.dtype.kind != "f" or values.size not in (1, self.n_layers) or not (np.abs(values) <= MAX_FACTOR).all():
            raise BadHParam(
                f"{_shown(value)} is not a number for each of {self.n_layers} layers; convert the model again",
                file=self.file,
                field=key,
            )
        return tuple(np.broadcast_to(values, self.n_layers).tolist())

    def floats_per_layer(self, key: str) -> tuple[float, ...] | None:
        """A float for each layer, which may be infinite; None where the key is missing."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size != self.n_layers or np.isnan(value).any():
            raise self.bad(key, f"{_shown(value)} is not a number for each of {self.n_layers} layers")
        return tuple(value.tolist())

    def optional(self, key: str, *, above: float = 0.0, high: float = MAX_FACTOR) -> float | None:
        """As `number`; None where the key is missing or 0, which files write for "off"."""
        return self.number(key, above=above, high=high, zero=True) or None if self.has(key) else None

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, (bool, np.bool_)):
            raise self.bad(key, f"{_shown(value)} is not true or false")
        return bool(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers of any length; none where the key is missing."""
        value = self._value(key)
        if value is None:
            return ()
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise self.bad(key, f"{_shown(value)} is not a list of integers")
        return tuple(value.tolist())

    def text(self, key: str, *, default: str, choices: tuple[str, ...]) -> str:
        """One of `choices`."""
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.bad(key, f"{_shown(value)} is not a string")
        if value not in choices:
            raise self.bad(key, f"{_shown(value)} is none of {', '.join(choices)}")
        return value

    def sliding_layers(self, key: str, drafting: int = 0) -> tuple[bool, ...] | None:
        """One flag per layer, or a period p: every p-th layer sees everything (0: none does). None where the key is missing.

        The last `drafting` layers may have no flag.
        """
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            missing = self.n_layers - value.size
            if missing not in (0, drafting) or value.dtype.kind not in "biu":
                raise self.bad(key, f"{value.size} values of type {value.dtype} for {self.n_layers} layers")
            return (*(bool(slides) for slides in value), *(True,) * missing)
        period = self.integer(key, 0, MAX_LAYERS)
        return tuple(period == 0 or layer % period < period - 1 for layer in range(self.n_layers))


def _shown(value: object) -> str:
    """A value for an error text, short whatever the file holds."""
    text = repr(value[:8].tolist()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
