"""The keys of a projector file, which llama.cpp's tools/mtmd/clip-impl.h names."""

from __future__ import annotations

import functools
import math

import numpy as np

from edgellm.errors import BadHParam, BadTensorInfo, ShapeMismatch
from edgellm.formats.gguf import GGUFFile, TensorInfo
from edgellm.hparams import Keys
from edgellm.image_spec import ImageSpec
from edgellm.spec import VECTOR_TYPES

ARCHITECTURE = "clip"
MOST_PIXELS = 1 << 14  # of a side
MOST_WIDTH = 1 << 16
MOST_PLACES = 1 << 20  # of a grid of positions
MOST_QUERIES = 4096
MOST_SIZES, MOST_TILES = 512, 144  # numbers in a list of sizes; tiles of one of them
QUERY = "resampler.query"
CUT_LAYERS = (23, 26)  # of CLIP's and SigLIP's large encoders without the last one
RENAMED = {"qwen2.5o": "qwen2.5vl_merger"}  # of files whose type names an encoder of audio as well
UNSAID = {"gemma4v": "gelu", "deepseekocr2": "silu"}  # activations of files that name none, by projector type
EPS = {"deepseekocr": 1e-5}  # of norms, by projector types whose files have another number


def rows_width(gguf: GGUFFile) -> int:
    """Width of the rows that go to the model: 0 where a file does not say. Files of MiniCPM-V have it in their queries only."""
    table = gguf.tensors.get(QUERY)
    if table is not None and len(table.shape) == 2:
        return int(table.shape[1])
    width = gguf.metadata.get("clip.vision.projection_dim", gguf.metadata.get("clip.audio.projection_dim"))
    return width if isinstance(width, int) and not isinstance(width, bool) and 0 < width <= MOST_WIDTH else 0


class EncoderKeys(Keys):
    """The keys that encoders of images and of audio have, read as `Keys` reads those of a model."""

    prefix: str  # of the names of its tensors
    activation: str

    @functools.cached_property
    def n_heads(self) -> int:
        n = self.integer("attention.head_count", 1, MOST_WIDTH)
        if self.n_embd % n and not self.has("attention.head_dim"):
            raise self.bad("attention.head_count", f"{n} heads cannot share {self.n_embd} dims")
        return n

    @functools.cached_property
    def n_kv_heads(self) -> int:
        """Heads of keys and values, each of which as many heads of queries share."""
        n = self.integer("attention.head_count_kv", 1, self.n_heads, default=self.n_heads)
        if self.n_heads % n:
            raise self.bad("attention.head_count_kv", f"{self.n_heads} heads cannot share {n}")
        return n

    @functools.cached_property
    def head_dim(self) -> int:
        return self.integer("attention.head_dim", 1, MOST_WIDTH, default=max(self.n_embd // self.n_heads, 1))

    @functools.cached_property
    def n_ff(self) -> int:
        """Width of the feed-forward's inner rows, by the shape of its matrices: the key is another number in files of Qwen2-VL."""
        up = self._gguf.tensors.get(f"{self.prefix}.blk.0.ffn_up.weight")
        if up is None or len(up.shape) != 2:
            return self.integer("feed_forward_length", 1, MOST_WIDTH)
        return int(up.shape[1] if self.swapped_ffn else up.shape[0])

    @functools.cached_property
    def swapped_ffn(self) -> bool:
        """True if the feed-forward's two matrices have each other's names, as old converters wrote them."""
        up = self._gguf.tensors.get(f"{self.prefix}.blk.0.ffn_up.weight")
        return up is not None and len(up.shape) == 2 and up.shape[0] == self.n_embd != up.shape[1]

    @functools.cached_property
    def eps(self) -> float:
        return self.number("attention.layer_norm_epsilon")

    @functools.cached_property
    def n_out(self) -> int:
        """Width of the rows that go to the model."""
        return self.integer("projection_dim", 1, MOST_WIDTH)

    def has_tensor(self, name: str) -> bool:
        return name in self._gguf.tensors

    def rows(self, tensor: str) -> int:
        """Rows of a matrix. Raises BadTensorInfo, ShapeMismatch."""
        self._needed(tensor)
        return super().rows(tensor)

    def columns(self, tensor: str) -> int:
        """Columns of a matrix. Raises BadTensorInfo, ShapeMismatch."""
        self.rows(tensor)
        return int(self._gguf.tensors[tensor].shape[-1])

    def length(self, tensor: str) -> int:
        """Numbers of a vector. Raises BadTensorInfo, ShapeMismatch."""
        shape = self._needed(tensor).shape
        if len(shape) != 1 or not 1 <= shape[0] <= MOST_WIDTH:
            raise ShapeMismatch(f"has shape {tuple(shape)}, where a vector belongs", file=self.file, field=tensor)
        return int(shape[0])

    def _needed(self, name: str) -> TensorInfo:
        """Raises BadTensorInfo."""
        tensor = self._gguf.tensors.get(name)
        if tensor is None:
            raise BadTensorInfo(
                "the encoder needs this tensor and the file lacks it; get a complete file", file=self.file, field=name
            )
        return tensor

    def scalar(self, name: str, default: float) -> float:
        """The number that a tensor of one value holds."""
        tensor = self._gguf.tensors.get(name)
        if tensor is None:
            return default
        if math.prod(tensor.shape) != 1 or tensor.type.name != "F32":
            raise ShapeMismatch(f"has shape {tuple(tensor.shape)}, where one F32 number belongs", file=self.file, field=name)
        value = float(np.frombuffer(self._gguf.raw(name), np.float32)[0])
        if math.isnan(value):
            raise BadHParam("is NaN; the file is damaged", file=self.file, field=name)
        return value


class VisionKeys(EncoderKeys):
    """The keys `clip.vision.*` of a projector file."""

    prefix = "v"

    def __init__(self, gguf: GGUFFile) -> None:
        """Raises BadHParam where the file has no image encoder."""
        super().__init__(gguf)
        clip = Keys(gguf)
        self.architecture = "clip.vision"
        kind = gguf.metadata.get("clip.projector_type", gguf.metadata.get("clip.vision.projector_type"))
        if not isinstance(kind, str) or not kind:
            raise BadHParam("is missing; this is no projector file, or a damaged one", file=self.file, field="clip.projector_type")
        if not clip.flag("has_vision_encoder", default=True):
            raise BadHParam("is false: the file encodes no images, take the model's image projector", file=self.file,
                            field="clip.has_vision_encoder")  # fmt: skip
        self.projector_type = RENAMED.get(kind, kind)
        gelu, silu = clip.flag("use_gelu", default=False), clip.flag("use_silu", default=False)
        if gelu and silu:
            raise clip.bad("use_silu", "is true beside use_gelu, and only one of them can be")
        self.activation = "gelu" if gelu else "silu" if silu else UNSAID.get(kind, "gelu_quick")

    @functools.cached_property
    def image_size(self) -> int:
        """Pixels of the side of the images that positions were learned for."""
        return self.integer("image_size", 1, MOST_PIXELS)

    @functools.cached_property
    def patch(self) -> int:
        """Pixels of a patch's side."""
        return self.integer("patch_size", 1, 256)

    @functools.cached_property
    def eps(self) -> float:
        return EPS.get(self.projector_type) or super().eps

    @functools.cached_property
    def n_out(self) -> int:
        return rows_width(self._gguf) if QUERY in self._gguf.tensors else super().n_out

    def spec(self, merge: int = 1) -> ImageSpec:
        """The part of an image form that all encoders share; `merge` as `ImageSpec` has it."""
        mean, std = self.colours("image_mean"), self.colours("image_std")
        return ImageSpec(patch=self.patch, merge=merge, mean=mean, std=std, resample="bicubic", layout="dynamic")

    @functools.cached_property
    def minicpmv_version(self) -> int:
        """The form of MiniCPM-V's prompts: 2 for 2.5, 3 and more for 2.6 and later ones."""
        clip = Keys(self._gguf)
        return clip.integer("minicpmv_version", 0, 1 << 30, default=2) or 2

    @functools.cached_property
    def queries(self) -> int:
        """Learned queries of a resampler."""
        table = self._gguf.tensors.get(QUERY)
        if table is None or len(table.shape) != 2 or not 1 <= table.shape[0] <= MOST_QUERIES:
            shape = None if table is None else tuple(table.shape)
            raise ShapeMismatch(f"has shape {shape}, where the rows of queries belong", file=self.file, field=QUERY)
        return int(table.shape[0])

    def merge(self, key: str, default: int) -> int:
        """Patches of the side of a square that becomes one row."""
        return self.integer(key, 1, 16, default=default)

    def square(self, merge: int) -> int:
        """Pixels of the side of square images, whose patches must make whole squares of `merge` x `merge`."""
        across = self.image_size // self.patch
        if not across or across % merge:
            raise self.bad("image_size", f"{across} patches of {self.patch} pixels cannot be merged by {merge}")
        return self.image_size

    def longest_edge(self, most: int) -> int:
        """Pixels of the longer side that pictures are resized to, `most` where the file says nothing."""
        return self.integer("preproc_image_size", 1, MOST_PIXELS, default=most)

    def resolutions(self, size: int) -> tuple[tuple[int, int], ...]:
        """Width and height of pictures that are cut into tiles of `size` x `size`; () where the file lists none."""
        value = self._value("image_grid_pinpoints")
        if value is None:
            return ()
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.size % 2 or not 2 <= value.size <= MOST_SIZES:
            raise self.bad("image_grid_pinpoints", "is not a list of widths and heights")
        found = tuple((int(width), int(height)) for width, height in value.reshape(-1, 2))
        if any(n < size or n % size or n > MOST_PIXELS for pair in found for n in pair):
            raise self.bad("image_grid_pinpoints", f"has sizes that tiles of {size} pixels don't fill")
        if any(width // size * (height // size) > MOST_TILES for width, height in found):
            raise self.bad("image_grid_pinpoints", f"has sizes of more than {MOST_TILES} tiles")
        return found

    def colours(self, key: str) -> tuple[float, float, float]:
        """One float for each colour."""
        value = self._value(key)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 3 or not np.isfinite(value).all():
            raise self.bad(key, "is not three numbers, one for each colour")
        red, green, blue = (float(each) for each in value[:3])
        if key.endswith("std") and min(red, green, blue) <= 0:
            raise self.bad(key, "has a deviation that is not above 0")
        return red, green, blue

    def check_row(self, name: str, n: int) -> None:
        """Raises BadTensorInfo, ShapeMismatch unless the tensor is one row of `n` numbers."""
        tensor = self._needed(name)
        if math.prod(tensor.shape) != n or tensor.type.name not in VECTOR_TYPES:
            raise ShapeMismatch(
                f"has shape {tuple(tensor.shape)} in {tensor.type.name}, where one row of {n} numbers belongs",
                file=self.file,
                field=name,
            )

    def kernel(self, name: str) -> tuple[int, int]:
        """Channels that a convolution gives, and the side of its kernel."""
        shape = self._needed(name).shape
        if len(shape) != 4 or shape[2] != shape[3] or not (1 <= shape[0] <= MOST_WIDTH and 1 <= shape[2] <= 256):
            raise ShapeMismatch(
                f"has shape {tuple(shape)}, which is no kernel of a convolution; the file is damaged", file=self.file, field=name
            )
        return int(shape[0]), int(shape[2])

    def axis(self, name: str) -> int:
        """Rows of each of two tables of positions, for columns and for rows of patches."""
        table = self._needed(name)
        if len(table.shape) != 3 or table.shape[0] != 2 or not 1 <= table.shape[1] <= MOST_PLACES:
            raise ShapeMismatch(
                f"has shape {tuple(table.shape)}, which are not two tables of positions; the file is damaged",
                file=self.file,
                field=name,
            )
        return int(table.shape[1])

    def grid(self, name: str, more: int = 0) -> int:
        """Rows of a table of learned positions, one for each place of a square grid; `more`: without so many others."""
        table = self._needed(name)
        shape = table.shape
        rows = shape[0] - more
        if len(shape) != 2 or not 1 <= rows <= MOST_PLACES or math.isqrt(rows) ** 2 != rows:
            raise ShapeMismatch(
                f"has shape {tuple(shape)}, and positions are those of a square grid; the file is damaged",
                file=self.file,
                field=name,
            )
        return int(rows)

    def feature_layers(self) -> tuple[int, ...]:
        """The numbers of layers after which rows are taken, ascending: those that the file names (several in Granite Vision), else
        all layers but the last, as LLaVA's makers have it. Files of LLaVA's converter have no last layer any more, and those of
        moondream 2 count one more than they have.
        """
        value = self._value("feature_layer")
        if value is None:
            last = self.n_layers - 1
            cut = self.n_layers in CUT_LAYERS or not last or not self.has_tensor(f"v.blk.{last}.ln1.weight")
            missing = (n for n in range(1, self.n_layers) if not self.has_tensor(f"v.blk.{n}.ln1.weight"))
            return (next(missing, last + 1 if cut else last),)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or not 1 <= value.size <= self.n_layers:
            raise self.bad("feature_layer", f"is not a list of some of {self.n_layers} layers")
        layers = tuple(sorted({int(each) for each in value}))
        if not 1 <= layers[0] <= layers[-1] <= self.n_layers:
            raise self.bad("feature_layer", f"names a layer that is not one of {self.n_layers}")
        return layers

    def layer_flags(self, key: str) -> tuple[bool, ...]:
        """One flag for each layer; all false where the key is missing."""
        value = self._value(key)
        if value is None:
            return (False,) * self.n_layers
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu" or value.size != self.n_layers:
            raise self.bad(key, f"is not one flag for each of {self.n_layers} layers")
        return tuple(bool(each) for each in value)
