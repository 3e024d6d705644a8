"""The guide as a PyTorch module: the llama architecture of GGUF files, with tied embeddings."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers that shape the model. Rows are multiples of 256, so that every quantisation applies."""

    vocabulary: int = 3072
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 768
    context: int = 1024
    rope_base: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


class Block(nn.Module):
    """One layer: attention and a gated feed-forward, each after its RMS norm. Projections that share an input are one matrix."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        rows = (shape.heads + 2 * shape.kv_heads) * shape.head_size
        self.attn_norm = nn.Parameter(torch.ones(shape.width))
        self.qkv = nn.Linear(shape.width, rows, bias=False)
        self.attn_output = nn.Linear(shape.width, shape.width, bias=False)
        self.ffn_norm = nn.Parameter(torch.ones(shape.width))
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.ffn_down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._attention(F.rms_norm(x, (self.shape.width,), self.attn_norm, self.shape.epsilon), cos, sin)
        gate, up = self.gate_up(F.rms_norm(x, (self.shape.width,), self.ffn_norm, self.shape.epsilon)).chunk(2, -1)
        out: Tensor = self.ffn_down(F.silu(gate) * up)
        return x + out

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s = self.shape
        rows, tokens, _ = x.shape
        qkv = self.qkv(x).view(rows, tokens, s.heads + 2 * s.kv_heads, s.head_size).transpose(1, 2)
        qk, v = qkv[:, : s.heads + s.kv_heads], qkv[:, s.heads + s.kv_heads :]
        qk = rotate(qk, cos[:tokens].to(qk.dtype), sin[:tokens].to(qk.dtype))
        q, k = qk[:, : s.heads], qk[:, s.heads :]
        repeats = s.heads // s.kv_heads
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1), is_causal=True)
        out: Tensor = self.attn_output(y.transpose(1, 2).reshape(rows, tokens, s.width))
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions with the halves of a head as pairs; export.py permutes the rows to GGUF's neighbouring pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Reader(nn.Module):
    """Tells what an answer will say before it is written: from the state where it begins, and from the mean of its question's
    states after half of the layers. Only training has it: one clear label for all wordings of an answer teaches the layers to read,
    and the mean to read words wherever they stand."""

    def __init__(self, shape: Shape, meanings: int) -> None:
        super().__init__()
        self.last, self.mean = nn.Linear(shape.width, meanings), nn.Linear(shape.width, meanings)

    def loss(self, middle: Tensor, states: Tensor, ids: Tensor, meanings: Tensor, user: int) -> Tensor:
        """Mean cross entropy: of `states` where an answer begins, and half that of the means over questions."""
        rows, ends = torch.nonzero(meanings >= 0, as_tuple=True)
        places = torch.arange(ids.shape[1], device=ids.device)
        begins = torch.where(ids == user, places, 0).cummax(1).values[rows, ends]
        sums = middle.float().cumsum(1)
        means = (sums[rows, ends] - sums[rows, begins]) / (ends - begins)[:, None]
        wanted = meanings[rows, ends]
        share = 1.0 / max(len(wanted), 1)
        return share * (
            F.cross_entropy(self.last(states[rows, ends]).float(), wanted, reduction="sum")
            + 0.5 * F.cross_entropy(self.mean(F.rms_norm(means, means.shape[-1:])).float(), wanted, reduction="sum")
        )


class Guide(nn.Module):
    """Token ids (rows, tokens) to logits (rows, tokens, vocabulary)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks: list[Block] = []  # also registered, one by one, so that their types are known
        for number in range(shape.layers):
            self.blocks.append(Block(shape))
            self.add_module(f"blk{number}", self.blocks[-1])
        self.output_norm = nn.Parameter(torch.ones(shape.width))
        half = shape.head_size // 2
        turning = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(shape.context, dtype=torch.float64)[:, None] * turning
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        residual = (2 * self.shape.layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                after = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(parameter, std=0.02 * (residual if after else 1.0))

    def hidden(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """States (rows, tokens, width) after half of the layers, and normalised ones before the output matrix."""
        x = middle = self.token_embd(ids)
        for number, block in enumerate(self.blocks, 1):
            x = block(x, self.cos, self.sin)
            if number == self.shape.layers // 2:
                middle = x
        return middle, F.rms_norm(x, (self.shape.width,), self.output_norm, self.shape.epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.hidden(ids)[1], self.token_embd.weight)

    def losses(self, ids: Tensor, weights: Tensor, meanings: Tensor, user: int, reader: Reader) -> tuple[Tensor, Tensor]:
        """Weighted mean cross entropy of each next token, and the reader's.

        `weights` (rows, tokens): of predicting the token at that place. `meanings` (rows, tokens): of the answer that begins after
        that place, or -1. `user`: the mark before questions.
        """
        middle, states = self.hidden(ids[:, :-1])
        wanted = weights[:, 1:] > 0
        logits = F.linear(states[wanted], self.token_embd.weight)
        losses = F.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
        share = weights[:, 1:][wanted]
        return (losses * share).sum() / share.sum().clamp(min=1.0), reader.loss(middle, states, ids[:, :-1], meanings[:, :-1], user)

    @property
    def parameters_in_all(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
