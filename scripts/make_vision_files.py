"""Writes tiny projector files of kinds that llama.cpp's converter does not make of transformers' models, and their expected rows.

    python scripts/make_vision_files.py FOLDER [NAME ...]         (needs: pip install torch torchvision transformers gguf)

The same folders as scripts/make_hf_vision.py writes: `scripts/check_vision.py FOLDER/*` compares.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers as t
from make_hf_vision import CLIP, HALF, TEXT, picture, randomise, rows_of, sizes_of


class File:
    """A projector file, tensor by tensor."""

    def __init__(self, folder: Path, kind: str, images: dict[str, Any], **keys: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = gguf.GGUFWriter(folder / "mmproj.gguf", "clip")
        self._writer.add_string("clip.projector_type", kind)
        self._writer.add_bool("clip.has_vision_encoder", True)
        self._writer.add_bool("clip.use_gelu", keys.pop("use_gelu", True))
        self._writer.add_float32("clip.vision.attention.layer_norm_epsilon", keys.pop("eps", 1e-5))
        for key, value in keys.items():
            name = f"clip.vision.{key.replace('__', '.')}"
            (self._writer.add_array if isinstance(value, list) else self._writer.add_uint32)(name, value)
        for key, colours in images.items():
            self._writer.add_array(f"clip.vision.{key}", colours)

    def add(self, name: str, module: Any, heads: int = 0, *, by_axis: bool = False) -> None:
        """The weight and bias of a module. `heads`: rows of halves of each head become pairs of neighbours, those that turn by
        columns first where they are `by_axis`, else by each axis in turn.
        """
        for part, value in module.named_parameters():
            found = value.detach()
            if by_axis:
                found = found.reshape(heads, 2, len(value) // heads // 4, 2, -1).permute(0, 3, 2, 1, 4).reshape(value.shape)
            elif heads:
                found = found.reshape(heads, 2, len(value) // heads // 2, -1).transpose(1, 2).reshape(value.shape)
            self.put(f"{name}.{part}", found)

    def blocks(self, layers: Any) -> None:
        """The layers of CLIP and SigLIP."""
        for number, layer in enumerate(layers):
            block = f"v.blk.{number}"
            for name in "qkv":
                self.add(f"{block}.attn_{name}", getattr(layer.self_attn, f"{name}_proj"))
            self.add(f"{block}.attn_out", layer.self_attn.out_proj)
            self.add(f"{block}.ln1", layer.layer_norm1)
            self.add(f"{block}.ln2", layer.layer_norm2)
            self.add(f"{block}.ffn_up", layer.mlp.fc1)
            self.add(f"{block}.ffn_down", layer.mlp.fc2)

    def put(self, name: str, values: Any) -> None:
        self._writer.add_tensor(name, values.detach().contiguous().numpy())

    def close(self) -> None:
        self._writer.write_header_to_file()
        self._writer.write_kv_data_to_file()
        self._writer.write_tensors_to_file()
        self._writer.close()


def expect(folder: Path, sizes: list[tuple[int, int]], images: dict[str, Any], rows: Callable[[Any], Any]) -> None:
    """Write pictures and their rows, which `rows` makes of normalised pixels (3, h, w)."""
    mean, std = (torch.tensor(images[key])[:, None, None] for key in ("image_mean", "image_std"))
    found = {}
    for number, (height, width) in enumerate(sizes):
        pixels = picture(height, width, number)
        with torch.no_grad():
            made = rows((torch.tensor(pixels).permute(2, 0, 1).float() / 255 - mean) / std)
        found |= {f"image_{number}": pixels, f"rows_{number}": made.numpy()}
    np.savez_compressed(folder / "expected.npz", **found)
    print(folder, flush=True)


def kimivl(folder: Path, kind: str = "kimivl") -> None:
    """MoonViT as transformers has it for Kimi K2.5, with pairs of neighbours as checkpoints of Kimi-VL and files of K2.5 have."""
    from transformers.models.kimi_k25.modeling_kimi_k25 import Kimi_K25VisionConfig, Kimi_K25VisionModel

    n, ff, heads, layers, out, merge = 64, 96, 2, 3, 48, 2
    config = Kimi_K25VisionConfig(
        hidden_size=n, intermediate_size=ff, num_attention_heads=heads, num_hidden_layers=layers, pos_emb_height=8,
        pos_emb_width=8, merge_kernel_size=(merge, merge), rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )  # fmt: skip
    model = Kimi_K25VisionModel(config).eval().float()
    norm, first, second = torch.nn.LayerNorm(n), torch.nn.Linear(n * merge**2, 80), torch.nn.Linear(80, out)
    for module in (model, norm, first, second):
        randomise(module)
    file = File(
        folder, kind, HALF, image_size=112, patch_size=14, embedding_length=n, feed_forward_length=ff, block_count=layers,
        attention__head_count=heads, projection_dim=out, projector__scale_factor=merge,
    )  # fmt: skip
    file.add("v.patch_embd", model.patch_embed.proj)
    table, split = model.patch_embed.pos_emb.position_embeddings, kind == "kimik25"
    file.put("v.position_embd.weight", table if split else table.reshape(-1, n))
    for number, layer in enumerate(model.layers):
        block = f"v.blk.{number}"
        for name in "qkv":
            turned = name != "v"
            file.add(f"{block}.attn_{name}", getattr(layer.attn, f"{name}_proj"), heads * turned, by_axis=split and turned)
        file.add(f"{block}.attn_out", layer.attn.proj)
        file.add(f"{block}.ln1", layer.norm1)
        file.add(f"{block}.ln2", layer.norm2)
        file.add(f"{block}.ffn_up", layer.mlp.fc1)
        file.add(f"{block}.ffn_down", layer.mlp.fc2)
    for name, module in {"v.post_ln": model.final_layernorm, "mm.input_norm": norm, "mm.1": first, "mm.2": second}.items():
        file.add(name, module)
    file.close()

    def rows(x: Any) -> Any:
        h, w = x.shape[1] // 14, x.shape[2] // 14
        patches = x.reshape(3, h, 14, w, 14).permute(1, 3, 0, 2, 4).reshape(-1, 3, 14, 14)
        merged_rows = model(patches, grid_thw=torch.tensor([[1, h, w]])).pooler_output.reshape(-1, merge**2, n)
        return second(torch.nn.functional.gelu(first(norm(merged_rows).flatten(1))))

    expect(folder, sizes_of(28), HALF, rows)


def clip(folder: Path, kind: str) -> tuple[File, Any]:
    """A file with CLIP's encoder, whose last layer is not used, and the model of transformers that it is of."""
    n, ff, heads, layers = 64, 96, 2, 4
    vision = {"model_type": "clip_vision_model", "hidden_size": n, "intermediate_size": ff, "num_attention_heads": heads,
              "num_hidden_layers": layers, "image_size": 64, "patch_size": 8}  # fmt: skip
    config = t.LlavaConfig(text_config=TEXT | {"model_type": "llama"}, vision_config=vision, image_token_index=263)
    model = t.LlavaForConditionalGeneration(config).eval().float()
    randomise(model)
    tower = model.model.vision_tower
    tower = getattr(tower, "vision_model", tower)
    file = File(
        folder, kind, CLIP, use_gelu=False, image_size=64, patch_size=8, embedding_length=n, feed_forward_length=ff,
        block_count=layers, attention__head_count=heads, projection_dim=TEXT["hidden_size"],
    )  # fmt: skip
    file.put("v.class_embd", tower.embeddings.class_embedding)
    file.add("v.patch_embd", tower.embeddings.patch_embedding)
    file.add("v.position_embd", tower.embeddings.position_embedding)
    file.add("v.pre_ln", tower.pre_layrnorm)
    file.blocks(tower.encoder.layers)
    return file, model.model


def llava(folder: Path) -> None:
    """LLaVA 1.5: CLIP with a class token."""
    file, model = clip(folder, "mlp")
    projector = model.multi_modal_projector
    file.add("mm.0", projector.linear_1)
    file.add("mm.2", projector.linear_2)
    file.close()
    expect(folder, [(64, 64)], CLIP, lambda x: torch.tensor(rows_of(model.get_image_features(x[None]))))


def granite(folder: Path) -> None:
    """Granite Vision: SigLIP, whose rows of two layers lie side by side."""
    vision = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2,
              "num_hidden_layers": 4, "image_size": 64, "patch_size": 8}  # fmt: skip
    config = t.LlavaConfig(
        text_config=TEXT | {"model_type": "llama"}, vision_config=vision, image_token_index=263, vision_feature_layer=[1, 3],
        vision_feature_select_strategy="full",
    )  # fmt: skip
    model = t.LlavaForConditionalGeneration(config).eval().float()
    randomise(model)
    tower = getattr(model.model.vision_tower, "vision_model", model.model.vision_tower)
    file = File(
        folder, "mlp", HALF, eps=1e-6, image_size=64, patch_size=8, embedding_length=64, feed_forward_length=96, block_count=4,
        attention__head_count=2, projection_dim=TEXT["hidden_size"], feature_layer=[1, 3],
    )  # fmt: skip
    file.add("v.patch_embd", tower.embeddings.patch_embedding)
    file.add("v.position_embd", tower.embeddings.position_embedding)
    file.blocks(tower.encoder.layers)
    file.add("mm.0", model.model.multi_modal_projector.linear_1)
    file.add("mm.2", model.model.multi_modal_projector.linear_2)
    file.close()
    expect(folder, [(64, 64)], HALF, lambda x: torch.tensor(rows_of(model.model.get_image_features(x[None]))))


def patches_of(model: Any, x: Any) -> Any:
    """Rows (n, width) of CLIP's last layer but one, without the class token."""
    tower = model.vision_tower
    return tower(x[None], output_hidden_states=True).hidden_states[-2][0, 1:]


class OverChannels(torch.nn.LayerNorm):
    """A layer norm of the channels of (1, n, h, w)."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Residual(torch.nn.Module):
    """MobileNetV3's inverted residual of MobileVLM's projector: no expansion, layer norms, hard swish."""

    def __init__(self, n: int, stride: int) -> None:
        super().__init__()
        self.depth = torch.nn.Conv2d(n, n, 3, stride, 1, groups=n, bias=False)
        self.norm, self.last = OverChannels(n), OverChannels(n)
        self.fc1, self.fc2 = torch.nn.Conv2d(n, n // 4, 1), torch.nn.Conv2d(n // 4, n, 1)
        self.point = torch.nn.Conv2d(n, n, 1, bias=False)
        self.added = stride == 1

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.hardswish(self.norm(self.depth(x)))
        gates = torch.nn.functional.hardsigmoid(self.fc2(torch.relu(self.fc1(y.mean((2, 3), keepdim=True)))))
        y = self.last(self.point(gates * y))
        return x + y if self.added else y


def on_grid(x: Any) -> Any:
    side = int(len(x) ** 0.5)
    return x.T.reshape(1, -1, side, side)


def mobilevlm(folder: Path) -> None:
    """MobileVLM's LDP projector."""
    file, model = clip(folder, "ldp")
    n = TEXT["hidden_size"]
    first, second, blocks = torch.nn.Linear(n, n), torch.nn.Linear(n, n), [Residual(n, 1), Residual(n, 2)]
    file.add("mm.model.mlp.1", first)
    file.add("mm.model.mlp.3", second)
    for number, block in enumerate(blocks, 1):
        randomise(block)
        name = f"mm.model.mb_block.{number}.block"
        for part, module in {"0.0": block.depth, "0.1": block.norm, "2.1": block.last}.items():
            file.add(f"{name}.{part}", module)
        for part, module in {"1.fc1": block.fc1, "1.fc2": block.fc2, "2.0": block.point}.items():
            file.put(f"{name}.{part}.weight", module.weight.flatten(1))
            if module.bias is not None:
                file.put(f"{name}.{part}.bias", module.bias)
    file.close()

    def rows(x: Any) -> Any:
        y = second(torch.nn.functional.gelu(first(patches_of(model, x))))
        return blocks[1](blocks[0](on_grid(y)))[0].flatten(1).T

    expect(folder, [(64, 64)], CLIP, rows)


def mobilevlm2(folder: Path) -> None:
    """MobileVLM 2's LDPv2 projector."""
    file, model = clip(folder, "ldpv2")
    n = TEXT["hidden_size"]
    first, second, peg = torch.nn.Linear(n, n), torch.nn.Linear(n, n), torch.nn.Conv2d(n, n, 3, 1, 1, groups=n)
    for name, module in {"mlp.0": first, "mlp.2": second, "peg.0": peg}.items():
        file.add(f"mm.model.{name}", module)
    file.close()

    def rows(x: Any) -> Any:
        y = torch.nn.functional.avg_pool2d(on_grid(second(torch.nn.functional.gelu(first(patches_of(model, x))))), 2)
        return (peg(y) + y)[0].flatten(1).T

    expect(folder, [(64, 64)], CLIP, rows)


def minicpmv(folder: Path) -> None:
    """SigLIP with positions by buckets, as Idefics 2 has it, and MiniCPM-V's resampler, by PyTorch's own attention."""
    from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionConfig, Idefics2VisionTransformer

    n, ff, heads, layers, out, queries, eps = 64, 96, 2, 3, 256, 9, 1e-6
    config = Idefics2VisionConfig(
        hidden_size=n, intermediate_size=ff, num_attention_heads=heads, num_hidden_layers=layers, image_size=64, patch_size=8,
        layer_norm_eps=eps, _attn_implementation="eager",
    )  # fmt: skip
    model, kv = Idefics2VisionTransformer(config).eval().float(), torch.nn.Linear(n, out, bias=False)
    attention = torch.nn.MultiheadAttention(out, out // 128, batch_first=True)
    norms = {name: torch.nn.LayerNorm(out, eps=eps) for name in ("q", "kv", "post")}
    query, projection = torch.nn.Parameter(torch.empty(queries, out)), torch.nn.Linear(out, out, bias=False)
    for module in (model, kv, attention, projection, *norms.values(), torch.nn.ParameterList([query])):
        randomise(module)
    file = File(
        folder, "resampler", HALF, eps=eps, image_size=64, patch_size=8, embedding_length=n, feed_forward_length=ff,
        block_count=layers, attention__head_count=heads, projection_dim=0,
    )  # fmt: skip
    embeddings = model.embeddings
    file.add("v.patch_embd", embeddings.patch_embedding)
    file.add("v.position_embd", embeddings.position_embedding)
    file.blocks(model.encoder.layers)
    file.add("v.post_ln", model.post_layernorm)
    file.put("resampler.query", query)
    file.add("resampler.kv", kv)
    file.add("resampler.proj", projection)
    file.add("resampler.attn.out", attention.out_proj)
    for name, weight, bias in zip("qkv", attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True):
        file.put(f"resampler.attn.{name}.weight", weight)
        file.put(f"resampler.attn.{name}.bias", bias)
    for name, module in norms.items():
        file.add(f"resampler.ln_{name}", module)
    file.close()

    def rows(x: Any) -> Any:
        h, w = x.shape[1] // 8, x.shape[2] // 8
        y = model(x[None], patch_attention_mask=torch.ones(1, h, w, dtype=torch.bool)).last_hidden_state
        turns = 1 / 10000 ** (torch.arange(out // 4) / (out // 4))
        column, row = (each.reshape(-1, 1) * turns for each in torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"))
        places = torch.cat([column.sin(), column.cos(), row.sin(), row.cos()], dim=1)
        values = norms["kv"](kv(y))
        return projection(norms["post"](attention(norms["q"](query)[None], values + places, values)[0]))[0]

    expect(folder, [(64, 64), (48, 80), (112, 40)], HALF, rows)


def sam(file: File, n_out: int) -> Any:
    """SAM's encoder as transformers has it for DeepSeek-OCR 2, with `n_out` values of each row, written to the file."""
    from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import DeepseekOcr2SamVisionConfig, DeepseekOcr2SamVisionEncoder

    config = DeepseekOcr2SamVisionConfig(
        hidden_size=64, output_channels=32, num_hidden_layers=3, num_attention_heads=2, image_size=128, patch_size=8,
        mlp_dim=96, window_size=6, global_attn_indexes=[2], downsample_channels=[48, n_out],
    )  # fmt: skip
    model = DeepseekOcr2SamVisionEncoder(config).eval().float()
    randomise(model)
    file.put("v.sam.pos_embd.weight", model.pos_embed)
    file.add("v.sam.patch_embd", model.patch_embed.projection)
    for number, layer in enumerate(model.layers):
        block = f"v.sam.blk.{number}"
        for axis in "hw":
            file.put(f"{block}.attn.pos_{axis}.weight", getattr(layer.attn, f"rel_pos_{axis}"))
        parts = {"pre_ln": layer.layer_norm1, "post_ln": layer.layer_norm2, "attn.qkv": layer.attn.qkv, "attn.out": layer.attn.proj}
        for name, module in (parts | {"mlp.lin1": layer.mlp.lin1, "mlp.lin2": layer.mlp.lin2}).items():
            file.add(f"{block}.{name}", module)
    convolutions = {"neck.0": model.neck.conv1, "neck.1": model.neck.layer_norm1, "neck.2": model.neck.conv2}
    convolutions |= {"neck.3": model.neck.layer_norm2, "net_2": model.proj.conv1, "net_3": model.proj.conv2}
    for name, module in convolutions.items():
        file.add(f"v.sam.{name}", module)
    return model


SAM_KEYS = {"sam__embedding_length": 64, "sam__block_count": 3, "sam__head_count": 2, "window_size": 6}


def deepseekocr(folder: Path) -> None:
    """DeepSeek-OCR: SAM as above, transformers' CLIP with its rows in the place of patches, positions as the makers resize them."""
    n, out, places = 64, 48, 4
    config = t.CLIPVisionConfig(
        hidden_size=n, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2, image_size=56, patch_size=14
    )
    model, last = t.CLIPVisionModel(config).eval().float(), torch.nn.Linear(2 * n, out)
    for module in (model, last):
        randomise(module)
    file = File(
        folder, "deepseekocr", HALF, image_size=224, patch_size=14, embedding_length=n, feed_forward_length=96, block_count=3,
        attention__head_count=2, projection_dim=out, eps=1e-6, **SAM_KEYS,
    )  # fmt: skip
    tower = sam(file, n)
    file.put("v.class_embd", model.embeddings.class_embedding)
    file.put("v.position_embd.weight", model.embeddings.position_embedding.weight)
    file.add("v.patch_embd", model.embeddings.patch_embedding)
    file.add("v.pre_ln", model.pre_layrnorm)
    file.blocks(model.encoder.layers)
    file.add("mm.model.fc", last)
    for name in ("v.image_newline", "v.view_seperator"):
        file.put(name, torch.randn(out))
    file.close()

    def rows(x: Any) -> Any:
        seen = tower(x[None]).last_hidden_state[0].permute(1, 2, 0)
        table = model.embeddings.position_embedding.weight
        grid = table[1:].reshape(1, places, places, n).permute(0, 3, 1, 2)
        if seen.shape[0] != places:
            grid = torch.nn.functional.interpolate(grid, seen.shape[:2], mode="bicubic", antialias=True, align_corners=False)
        y = torch.cat([(model.embeddings.class_embedding + table[0])[None], seen.reshape(-1, n) + grid[0].flatten(1).T])
        y = model.encoder(inputs_embeds=model.pre_layrnorm(y)[None]).last_hidden_state[0, 1:]
        return last(torch.cat([y, seen.reshape(-1, n)], dim=1))

    expect(folder, [(128, 128), (80, 80)], HALF, rows)


def deepseekocr2(folder: Path) -> None:
    """DeepSeek-OCR 2 as transformers has it, with tables of queries for the smaller grids here."""
    from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import DeepseekOcr2VisionEncoder, DeepseekOcr2VisionEncoderConfig

    n, out, layers = 64, 48, 3
    config = DeepseekOcr2VisionEncoderConfig(
        hidden_size=n, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, rms_norm_eps=1e-6,
    )  # fmt: skip
    model, last = DeepseekOcr2VisionEncoder(config).eval().float(), torch.nn.Linear(n, out)
    tables = {256: torch.nn.Embedding(16, n), 144: torch.nn.Embedding(9, n)}
    for module in (model, last, *tables.values()):
        randomise(module)
    file = File(
        folder, "deepseekocr2", HALF, image_size=1024, patch_size=16, embedding_length=n, feed_forward_length=96,
        block_count=layers, attention__head_count=4, attention__head_count_kv=2, projection_dim=out, eps=1e-6, **SAM_KEYS,
    )  # fmt: skip
    tower = sam(file, n)
    for number, layer in enumerate(model.layers):
        block = f"v.blk.{number}"
        parts = {f"attn_{name}": getattr(layer.self_attn, f"{name}_proj") for name in "qkv"}
        parts |= {"attn_out": layer.self_attn.o_proj, "ln1": layer.input_layernorm, "ln2": layer.post_attention_layernorm}
        for name, module in (
            parts | {f"ffn_{name}": getattr(layer.mlp, f"{name}_proj") for name in ("gate", "up", "down")}
        ).items():
            file.add(f"{block}.{name}", module)
    file.add("v.post_ln", model.norm)
    file.add("mm.model.fc", last)
    file.put("v.resample_query_1024.weight", tables[256].weight)
    file.put("v.resample_query_768.weight", tables[144].weight)
    file.put("v.view_seperator", torch.randn(1, out))
    file.close()

    def rows(x: Any) -> Any:
        seen = tower(x[None]).last_hidden_state.flatten(2).transpose(1, 2)
        queries = tables[256 if seen.shape[1] == 16 else 144].weight[None]
        found = model(torch.cat([seen, queries], dim=1), num_patches=seen.shape[1]).last_hidden_state
        return last(found[0, seen.shape[1] :])

    expect(folder, [(128, 128), (96, 96)], HALF, rows)


def step3vl(folder: Path) -> None:
    """Step 3.7's encoder, with pairs of neighbours and fused products as its checkpoints have them."""
    from transformers.models.step3p7.modeling_step3p7 import Step3p7VisionConfig, Step3p7VisionModel

    n, heads, layers, out, patch = 64, 2, 3, 48, 14
    config = Step3p7VisionConfig(
        hidden_size=n, num_attention_heads=heads, num_hidden_layers=layers, image_size=112, patch_size=patch, mlp_ratio=1.5,
        rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )  # fmt: skip
    model, projection = Step3p7VisionModel(config).eval().float(), torch.nn.Linear(4 * n, out, bias=False)
    for module in (model, projection):
        randomise(module)
    file = File(
        folder, "step3vl", CLIP, use_gelu=False, image_size=112, patch_size=patch, embedding_length=n, feed_forward_length=96,
        block_count=layers, attention__head_count=heads, projection_dim=out, projector__scale_factor=4,
    )  # fmt: skip
    file.add("v.patch_embd", model.embeddings.patch_embedding)
    file.add("v.position_embd", model.embeddings.position_embedding)
    file.add("v.pre_ln", model.pre_layernorm)
    for number, layer in enumerate(model.layers):
        block, attention = f"v.blk.{number}", layer.self_attn
        for name in "qkv":
            file.add(f"{block}.attn_{name}", getattr(attention, f"{name}_proj"), heads * (name != "v"))
        file.add(f"{block}.attn_out", attention.out_proj)
        file.add(f"{block}.ln1", layer.layernorm_before)
        file.add(f"{block}.ln2", layer.layernorm_after)
        file.add(f"{block}.ffn_up", layer.mlp.fc1)
        file.add(f"{block}.ffn_down", layer.mlp.fc2)
        file.put(f"{block}.ls1.weight", layer.lambda_1)
        file.put(f"{block}.ls2.weight", layer.lambda_2)
    for name, module in {"mm.0": model.downsampler1, "mm.1": model.downsampler2, "mm.model.fc": projection}.items():
        file.add(name, module)
    file.close()
    expect(folder, sizes_of(4 * patch), CLIP, lambda x: projection(model(x[None]).last_hidden_state)[0])


DIRECT = {
    "step3vl": step3vl,
    "deepseekocr2": deepseekocr2,
    "deepseekocr": deepseekocr,
    "kimivl": kimivl,
    "kimik25": functools.partial(kimivl, kind="kimik25"),
    "llava": llava,
    "granite": granite,
    "mobilevlm": mobilevlm,
    "mobilevlm2": mobilevlm2,
    "minicpmv": minicpmv,
}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for name, write in DIRECT.items():
        if not names or name in names:
            torch.manual_seed(0)
            write(folder / name)


if __name__ == "__main__":
    main()
