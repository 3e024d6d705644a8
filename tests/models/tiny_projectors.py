"""Pictures, and tiny projector files (mmproj-*.gguf) with seeded random weights: one for each projector type that is supported."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from tiny_models import tiny_model

import edgellm

N, FF, LAYERS, OUT = 32, 48, 3, 64  # width, feed-forward, layers, width of the rows
Shapes = dict[str, tuple[int, ...]]
HALF = [0.5, 0.5, 0.5]


def picture(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A smooth picture with some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(y / 7 + seed), np.cos(x / 5), np.sin((x + y) / 9)], axis=-1)
    return (127 + 100 * waves + rng.integers(0, 20, (height, width, 3))).astype(np.uint8)


def encoded(image: Pillow.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def seeing(folder: Path, kind: str = "idefics3", arch: str = "llama", tokenizer: str = "bpe", **options: Any) -> edgellm.Model:
    """A tiny model with an encoder of this kind beside it, loaded."""
    projector_file(folder / "mmproj.gguf", kind)
    return edgellm.load(tiny_model(folder / "m.gguf", arch, "F32", n_embd=OUT, tokenizer=tokenizer), **{"context": 512} | options)


def damaged(data: bytes, seed: int) -> bytes:
    """A projector file that is cut, or whose header has other bytes in places."""
    chance, broken = random.Random(seed), bytearray(data)
    if seed % 4 == 0:
        broken = broken[: chance.randrange(len(broken))]
    elif seed % 4 == 1:
        broken[chance.randrange(6000)] = chance.randrange(256)
    elif seed % 4 == 2:
        key = chance.choice([at for at in range(3000) if broken.startswith(b"clip.", at)])
        broken[key + chance.randrange(20, 70)] = chance.randrange(256)
    else:
        first = chance.randrange(6000)
        broken[first : first + chance.randrange(1, 64)] = chance.randbytes(chance.randrange(1, 64))
    return bytes(broken)


def _linear(name: str, n: int, k: int) -> Shapes:
    return {f"{name}.weight": (n, k), f"{name}.bias": (n,)}


def _norm(name: str, n: int) -> Shapes:
    return {f"{name}.weight": (n,), f"{name}.bias": (n,)}


def _vit(patch: int, places: int, *, fused: bool = False) -> Shapes:
    """Patches, positions and blocks of a vision transformer with biases and layer norms."""
    shapes: Shapes = {"v.patch_embd.weight": (N, 3, patch, patch), "v.patch_embd.bias": (N,), "v.position_embd.weight": (places, N)}
    for layer in range(LAYERS):
        block = f"v.blk.{layer}"
        shapes |= _norm(f"{block}.ln1", N) | _norm(f"{block}.ln2", N) | _linear(f"{block}.attn_out", N, N)
        for name in ("attn_qkv",) if fused else ("attn_q", "attn_k", "attn_v"):
            shapes |= _linear(f"{block}.{name}", 3 * N if fused else N, N)
        shapes |= _linear(f"{block}.ffn_up", FF, N) | _linear(f"{block}.ffn_down", N, FF)
    return shapes


def _qwen3vl() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(16, 64, fused=True) | {"v.patch_embd.weight.1": (N, 3, 16, 16)} | _norm("v.post_ln", N)
    shapes |= _linear("mm.0", 4 * N, 4 * N) | _linear("mm.2", OUT, 4 * N)
    shapes |= (
        _norm("v.deepstack.1.norm", 4 * N) | _linear("v.deepstack.1.fc1", 4 * N, 4 * N) | _linear("v.deepstack.1.fc2", OUT, 4 * N)
    )
    return {"spatial_merge_size": 2, "is_deepstack_layers": [False, True, False], "patch_size": 16}, shapes


def _idefics3() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | _norm("v.post_ln", N) | {"mm.model.fc.weight": (OUT, 4 * N)}
    return {"projector.scale_factor": 2, "preproc_image_size": 128, "patch_size": 8, "image_size": 64}, shapes


def _gemma3() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | _norm("v.post_ln", N) | {"mm.soft_emb_norm.weight": (N,), "mm.input_projection.weight": (N, OUT)}
    return {"projector.scale_factor": 2, "patch_size": 8, "image_size": 64}, shapes


def _lfm2() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(16, 64) | _norm("v.post_ln", N) | _norm("mm.input_norm", 4 * N)
    return {"projector.scale_factor": 2, "patch_size": 16}, shapes | _linear("mm.1", 40, 4 * N) | _linear("mm.2", OUT, 40)


def _qwen2vl() -> tuple[dict[str, Any], Shapes]:
    shapes = {name: shape for name, shape in _vit(14, 1).items() if "position" not in name and name != "v.patch_embd.bias"}
    shapes |= {"v.patch_embd.weight.1": (N, 3, 14, 14)} | _norm("v.post_ln", N)
    return {"patch_size": 14}, shapes | _linear("mm.0", 4 * N, 4 * N) | _linear("mm.2", OUT, 4 * N)


def _qwen25vl() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _qwen2vl()
    shapes = {name: shape for name, shape in shapes.items() if not (name.endswith(".bias") and ("ln1" in name or "ln2" in name))}
    del shapes["v.post_ln.bias"]
    for layer in range(LAYERS):
        shapes |= _linear(f"v.blk.{layer}.ffn_gate", FF, N)
    return keys | {"n_wa_pattern": 2}, shapes


def _pixtral() -> tuple[dict[str, Any], Shapes]:
    _, shapes = _qwen25vl()
    shapes = {name: shape for name, shape in shapes.items() if name.startswith("v.blk") and name.endswith(".weight")}
    shapes |= {"v.patch_embd.weight": (N, 3, 14, 14), "v.pre_ln.weight": (N,), "mm.input_norm.weight": (N,)}
    shapes |= {"mm.patch_merger.weight": (N, 4 * N), "v.token_embd.img_break": (OUT,)}
    return {"patch_size": 14, "spatial_merge_size": 2}, shapes | _linear("mm.1", OUT, N) | _linear("mm.2", OUT, OUT)


def _lightonocr() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _pixtral()
    del shapes["v.token_embd.img_break"]
    return keys | {"image_size": 140}, shapes


def _dots_ocr() -> tuple[dict[str, Any], Shapes]:
    shapes = _gated(14) | {"v.patch_embd.bias": (N,), "v.pre_ln.weight": (N,), "mm.post_norm.weight": (N,)}
    keys = {"patch_size": 14, "projector.scale_factor": 2, "image_min_pixels": 28 * 28, "image_max_pixels": 28 * 28 * 64}
    return keys, shapes | _norm("mm.input_norm", N) | _linear("mm.0", 40, 4 * N) | _linear("mm.2", OUT, 40)


def _janus_pro() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | _norm("v.post_ln", N) | _linear("mm.0", 40, N) | _linear("mm.1", OUT, 40)
    return {"patch_size": 8, "image_size": 64}, shapes


def _class_row(shapes: Shapes) -> Shapes:
    """With a class token, and its row in the table of positions."""
    places = shapes["v.position_embd.weight"][0]
    return shapes | {"v.class_embd": (N,), "v.position_embd.weight": (places + 1, N)}


def _internvl() -> tuple[dict[str, Any], Shapes]:
    shapes = _class_row(_vit(8, 64)) | _norm("mm.model.mlp.0", 4 * N)
    shapes |= {f"v.blk.{layer}.{name}.weight": (N,) for layer in range(LAYERS) for name in ("ls1", "ls2")}
    keys = {"projector.scale_factor": 2, "patch_size": 8, "image_size": 64, "preproc_max_tiles": 6}
    return keys, shapes | _linear("mm.model.mlp.1", 40, 4 * N) | _linear("mm.model.mlp.3", OUT, 40)


def _llama4() -> tuple[dict[str, Any], Shapes]:
    shapes = _class_row(_vit(8, 64)) | _norm("v.pre_ln", N) | _norm("v.post_ln", N) | {"v.patch_embd.weight": (N, 192)}
    del shapes["v.patch_embd.bias"]
    shapes |= {"mm.model.mlp.1.weight": (40, 4 * N), "mm.model.mlp.2.weight": (40, 40), "mm.model.fc.weight": (OUT, 40)}
    return {"projector.scale_factor": 2, "patch_size": 8, "image_size": 64}, shapes


def _mlp() -> tuple[dict[str, Any], Shapes]:
    shapes = _class_row(_vit(8, 64)) | _norm("v.pre_ln", N) | _linear("mm.0", 40, N) | _linear("mm.2", OUT, 40)
    del shapes["v.patch_embd.bias"]
    return {"patch_size": 8, "image_size": 64, "block_count": LAYERS + 1}, shapes


def _ldp() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _mlp()
    shapes = {name: shape for name, shape in shapes.items() if not name.startswith("mm.")}
    shapes |= _linear("mm.model.mlp.1", OUT, N) | _linear("mm.model.mlp.3", OUT, OUT)
    for block in ("mm.model.mb_block.1.block", "mm.model.mb_block.2.block"):
        shapes |= {f"{block}.0.0.weight": (OUT, 1, 3, 3), f"{block}.2.0.weight": (OUT, OUT)}
        shapes |= _norm(f"{block}.0.1", OUT) | _norm(f"{block}.2.1", OUT)
        shapes |= _linear(f"{block}.1.fc1", 16, OUT) | _linear(f"{block}.1.fc2", OUT, 16)
    return keys, shapes


def _ldpv2() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _mlp()
    shapes = {name: shape for name, shape in shapes.items() if not name.startswith("mm.")}
    shapes |= _linear("mm.model.mlp.0", OUT, N) | _linear("mm.model.mlp.2", OUT, OUT)
    return keys, shapes | {"mm.model.peg.0.weight": (OUT, 1, 3, 3), "mm.model.peg.0.bias": (OUT,)}


def _adapter() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | {"adapter.conv.weight": (OUT, N, 2, 2), "adapter.conv.bias": (OUT,), "adapter.boi": (1, 1, OUT)}
    shapes |= {"adapter.eoi": (1, 1, OUT), "adapter.linear.linear.weight": (OUT, OUT)} | _norm("adapter.linear.norm1", OUT)
    shapes |= {f"adapter.linear.{name}.weight": (40, OUT) for name in ("gate", "dense_h_to_4h")}
    return {"patch_size": 8, "image_size": 64}, shapes | {"adapter.linear.dense_4h_to_h.weight": (OUT, 40)}


def llava_next() -> tuple[dict[str, Any], Shapes]:
    """LLaVA 1.6: tiles on one grid with a row at the end of each line."""
    keys, shapes = _mlp()
    sizes = [128, 64, 64, 128, 128, 128, 192, 64, 64, 192]
    return keys | {"image_grid_pinpoints": sizes}, shapes | {"model.image_newline": (OUT,)}


def _gated(patch: int) -> Shapes:
    """Blocks with RMS norms and gates."""
    shapes = {name: shape for name, shape in _vit(patch, 1).items() if name.startswith("v.blk") and name.endswith(".weight")}
    shapes["v.patch_embd.weight"] = (N, 3, patch, patch)
    return shapes | {f"v.blk.{layer}.ffn_gate.weight": (FF, N) for layer in range(LAYERS)}


def _glm4v() -> tuple[dict[str, Any], Shapes]:
    shapes = _gated(14) | {"v.patch_embd.weight.1": (N, 3, 14, 14), "v.patch_embd.bias": (N,), "v.norm_embd.weight": (N,)}
    shapes |= {"v.position_embd.weight": (64, N), "v.post_ln.weight": (N,)} | _norm("mm.post_norm", OUT)
    shapes |= {"mm.patch_merger.weight": (OUT, N, 2, 2), "mm.patch_merger.bias": (OUT,), "mm.model.fc.weight": (OUT, OUT)}
    return {"patch_size": 14}, shapes | {"mm.up.weight": (40, OUT), "mm.gate.weight": (40, OUT), "mm.down.weight": (OUT, 40)}


def _glm5v() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _glm4v()
    del shapes["v.norm_embd.weight"], shapes["v.position_embd.weight"]
    for layer in range(LAYERS):
        shapes |= {f"v.blk.{layer}.attn_{name}_norm.weight": (N // 2,) for name in "qk"}
    return keys | {"swiglu_clamp": 0.5, "image_min_pixels": 4 * 784, "image_max_pixels": 64 * 784}, shapes


def _gemma4v() -> tuple[dict[str, Any], Shapes]:
    shapes = _gated(8) | {"v.position_embd.weight": (2, 64, N), "v.std_bias": (N,), "v.std_scale": (N,)}
    for layer in range(LAYERS):
        shapes |= {f"v.blk.{layer}.{name}_post_norm.weight": (N,) for name in ("attn", "ffn")}
        shapes |= {f"v.blk.{layer}.attn_{name}_norm.weight": (N // 2,) for name in "qk"}
        shapes |= {f"v.blk.{layer}.attn_q.{bound}": (1,) for bound in ("input_min", "input_max", "output_min", "output_max")}
    return {"projector.scale_factor": 2, "patch_size": 8}, shapes | {"mm.input_projection.weight": (OUT, N)}


def _gemma4uv() -> tuple[dict[str, Any], Shapes]:
    shapes: Shapes = {"v.patch_embd.weight": (N, 768), "v.patch_embd.bias": (N,), "v.position_embd.weight": (2, 64, N)}
    for number, width in ((1, 768), (2, N), (3, N)):
        shapes |= _norm(f"v.patch_norm.{number}", width)
    keys = {"projector.scale_factor": 2, "patch_size": 8, "block_count": 0, "feed_forward_length": 0, "attention.head_count": 0}
    return keys, shapes | {"mm.input_projection.weight": (OUT, N)}


def _paddleocr() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(14, 64) | _norm("v.post_ln", N) | _norm("mm.input_norm", N)
    return {"patch_size": 14}, shapes | _linear("mm.1", 4 * N, 4 * N) | _linear("mm.2", OUT, 4 * N)


def _kimivl() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _paddleocr()
    return keys | {"projector.scale_factor": 2}, shapes | _linear("mm.1", 40, 4 * N) | _linear("mm.2", OUT, 40)


def _kimik25() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _kimivl()
    return keys | {"image_max_pixels": 14 * 14 * 64}, shapes | {"v.position_embd.weight": (8, 8, N)}


def _hunyuanvl() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | {"mm.pre_norm.weight": (N,), "mm.0.weight": (2 * N, N, 2, 2), "mm.0.bias": (2 * N,)}
    shapes |= {"mm.2.weight": (4 * N, 2 * N, 1, 1), "mm.2.bias": (4 * N,), "v.image_newline": (4 * N,), "v.view_seperator": (OUT,)}
    shapes |= _linear("mm.model.fc", OUT, 4 * N) | {"mm.post_norm.weight": (OUT,), "mm.image_begin": (OUT,), "mm.image_end": (OUT,)}
    return {"patch_size": 8, "image_min_pixels": 16 * 16 * 4, "image_max_pixels": 16 * 16 * 64}, shapes


def _resampler() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | _norm("v.post_ln", N) | {"resampler.query": (9, OUT), "resampler.kv.weight": (OUT, N)}
    shapes |= {"resampler.pos_embed_k": (64, OUT), "resampler.proj.weight": (OUT, OUT)}
    for name in ("q", "k", "v", "out"):
        shapes |= _linear(f"resampler.attn.{name}", OUT, OUT)
    for name in ("q", "kv", "post"):
        shapes |= _norm(f"resampler.ln_{name}", OUT)
    return {"patch_size": 8, "image_size": 64, "projection_dim": 0}, shapes


def _minicpmv4_6() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64) | _norm("v.post_ln", N) | _norm("v.vit_merger.ln1", N) | _norm("v.vit_merger.ds_ln", 4 * N)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        shapes |= _linear(f"v.vit_merger.{name}", N, N)
    shapes |= _linear("v.vit_merger.ds_ffn_up", 4 * FF, 4 * N) | _linear("v.vit_merger.ds_ffn_down", N, 4 * FF)
    shapes |= _norm("mm.input_norm", 4 * N) | _linear("mm.up", 4 * N, 4 * N) | _linear("mm.down", OUT, 4 * N)
    return {"patch_size": 8, "image_size": 64, "projector.scale_factor": 4, "wa_layer_indexes": [0]}, shapes


def _youtuvl() -> tuple[dict[str, Any], Shapes]:
    shapes = {name: shape for name, shape in _vit(14, 1).items() if "position" not in name} | {"v.patch_embd.weight": (N, 588)}
    shapes |= _norm("v.post_ln", N) | {"mm.input_norm.weight": (N,)} | _linear("mm.0", 4 * N, 4 * N) | _linear("mm.2", OUT, 4 * N)
    return {"patch_size": 14, "window_size": 56, "wa_layer_indexes": [1]}, shapes


def _step3vl() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(8, 64, fused=True) | _norm("v.pre_ln", N) | {"mm.model.fc.weight": (OUT, 4 * N)}
    del shapes["v.patch_embd.bias"]
    shapes |= {f"v.blk.{layer}.{name}.weight": (N,) for layer in range(LAYERS) for name in ("ls1", "ls2")}
    shapes |= {"mm.0.weight": (2 * N, N, 3, 3), "mm.0.bias": (2 * N,), "mm.1.weight": (4 * N, 2 * N, 3, 3), "mm.1.bias": (4 * N,)}
    return {"patch_size": 8, "image_size": 128}, shapes


def _exaone4_5() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _qwen25vl()
    for block in (f"v.blk.{layer}" for layer in range(LAYERS)):
        for name in "qkv":
            del shapes[f"{block}.attn_{name}.weight"], shapes[f"{block}.attn_{name}.bias"]
        shapes |= _linear(f"{block}.attn_qkv", 2 * N, N)
    return keys | {"attention.head_count_kv": 1, "window_size": 56}, shapes


def _ling3vl() -> tuple[dict[str, Any], Shapes]:
    _, shapes = _qwen3vl()
    shapes = {name: shape for name, shape in shapes.items() if "deepstack" not in name and "post_ln" not in name}
    return {"spatial_merge_size": 2, "patch_size": 16}, shapes | _norm("mm.input_norm", N)


def _phi4() -> tuple[dict[str, Any], Shapes]:
    shapes = _vit(16, 64) | _linear("mm.0", OUT, N) | _linear("mm.2", OUT, OUT)
    return {"patch_size": 16, "image_min_pixels": 32 * 32, "image_max_pixels": 128 * 128}, shapes


def _sam() -> tuple[dict[str, Any], Shapes]:
    """Images of 16 x 16 patches, which fill windows of 6 x 6 in part."""
    n, neck, heads, side, window = 32, 16, 2, 16, 6
    shapes: Shapes = {"v.sam.patch_embd.weight": (n, 3, 4, 4), "v.sam.patch_embd.bias": (n,)}
    shapes |= {"v.sam.pos_embd.weight": (1, side, side, n), "v.sam.neck.0.weight": (neck, n, 1, 1)} | _norm("v.sam.neck.1", neck)
    shapes |= {"v.sam.neck.2.weight": (neck, neck, 3, 3), "v.sam.net_2.weight": (24, neck, 3, 3)} | _norm("v.sam.neck.3", neck)
    for layer in range(LAYERS):
        block = f"v.sam.blk.{layer}"
        places = 2 * (side if layer == 2 else window) - 1
        shapes |= {f"{block}.attn.pos_{axis}.weight": (places, n // heads) for axis in "hw"}
        shapes |= _norm(f"{block}.pre_ln", n) | _norm(f"{block}.post_ln", n) | _linear(f"{block}.attn.qkv", 3 * n, n)
        shapes |= _linear(f"{block}.attn.out", n, n) | _linear(f"{block}.mlp.lin1", FF, n) | _linear(f"{block}.mlp.lin2", n, FF)
    keys = {"sam.embedding_length": n, "sam.block_count": LAYERS, "sam.head_count": heads, "window_size": window}
    return keys | {"preproc_max_tiles": 4}, shapes | {"v.sam.net_3.weight": (N, 24, 3, 3), "v.view_seperator": (1, OUT)}


def _deepseekocr() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _sam()
    shapes |= {name: shape for name, shape in _class_row(_vit(14, 16, fused=True)).items() if "patch_embd.bias" not in name}
    shapes |= {"v.image_newline": (OUT,)} | _norm("v.pre_ln", N) | _linear("mm.model.fc", OUT, 2 * N)
    return keys | {"patch_size": 14, "image_size": 224}, shapes


def _deepseekocr2() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = _sam()
    blocks = {name: shape for name, shape in _gated(14).items() if name.startswith("v.blk.")}
    for block in (f"v.blk.{layer}" for layer in range(LAYERS)):
        for name in "kv":
            blocks[f"{block}.attn_{name}.weight"] = (N // 2, N)
    shapes |= blocks | {"v.post_ln.weight": (N,)} | _linear("mm.model.fc", OUT, N)
    shapes |= {"v.resample_query_1024.weight": (16, N), "v.resample_query_768.weight": (9, N)}
    return keys | {"patch_size": 16, "image_size": 1024, "attention.head_count_kv": 1}, shapes


KINDS = {
    "deepseekocr": _deepseekocr,
    "deepseekocr2": _deepseekocr2,
    "exaone4_5": _exaone4_5,
    "ling3vl": _ling3vl,
    "phi4": _phi4,
    "resampler": _resampler,
    "internvl": _internvl,
    "llama4": _llama4,
    "mlp": _mlp,
    "ldp": _ldp,
    "ldpv2": _ldpv2,
    "adapter": _adapter,
    "glm4v": _glm4v,
    "glm5v": _glm5v,
    "gemma4v": _gemma4v,
    "gemma4uv": _gemma4uv,
    "paddleocr": _paddleocr,
    "kimivl": _kimivl,
    "kimik25": _kimik25,
    "step3vl": _step3vl,
    "youtuvl": _youtuvl,
    "minicpmv4_6": _minicpmv4_6,
    "hunyuanvl": _hunyuanvl,
    "qwen3vl_merger": _qwen3vl,
    "idefics3": _idefics3,
    "gemma3": _gemma3,
    "lfm2": _lfm2,
    "qwen2vl_merger": _qwen2vl,
    "qwen2.5vl_merger": _qwen25vl,
    "pixtral": _pixtral,
    "lightonocr": _lightonocr,
    "dots_ocr": _dots_ocr,
    "janus_pro": _janus_pro,
}


def projector_file(path: Path, kind: str, *, kind_of: str = "F32", seed: int = 0, **keys: Any) -> Path:
    """A projector of this type; matrices in `kind_of` (F32 or F16). `keys`: `clip.vision.*` that are different, None: missing."""
    own, shapes = KINDS[kind]()
    vision = {
        "image_size": 128,
        "projection_dim": OUT,
        "embedding_length": N,
        "feed_forward_length": FF,
        "block_count": LAYERS,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": 1e-6,
        "image_mean": HALF,
        "image_std": HALF,
    } | own
    clip = {"clip.projector_type": kind, "clip.has_vision_encoder": True, "clip.use_gelu": True}
    vision |= {key.replace("__", "."): value for key, value in keys.items()}
    return written(path, clip | {f"clip.vision.{key}": value for key, value in vision.items()}, shapes, kind_of, seed)


def written(path: Path, keys: dict[str, Any], shapes: Shapes, kind_of: str, seed: int) -> Path:
    """A file of an encoder. Keys whose value is None are missing."""
    writer = gguf.GGUFWriter(path, "clip")
    for key, value in keys.items():
        if value is not None:
            _add(writer, key, value)
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = rng.normal(size=shape).astype(np.float32) * (0.1 if len(shape) == 1 else 1 / np.sqrt(np.prod(shape[1:])))
        values += name.endswith(
            (
                "ln1.weight",
                "ln2.weight",
                "norm.weight",
                "post_ln.weight",
                "ln_q.weight",
                "ln_kv.weight",
                "ln_post.weight",
                "pre_ln.weight",
                "0.1.weight",
                "2.1.weight",
                "norm1.weight",
                "neck.1.weight",
                "neck.3.weight",
            )
        )
        values += 2 * name.endswith("_max") - 2 * name.endswith("_min")
        narrow = kind_of == "F16" and len(shape) == 2 and "position" not in name
        writer.add_tensor(name, values.astype(np.float16 if narrow else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
