"""Alternating updates of Gemma 3n: a token has several rows, of which a layer computes one and predicts the others."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.altup import mix, rescale
from edgellm.ops.dense import activation, add, columns, matmul, scale
from edgellm.ops.heads import head_matmul, join
from edgellm.ops.norm import rms_norm

MOST_ROWS = 64
FLOOR = 1e-5  # of the mean square of a projected row, before it gets the size of another one


@dataclass(frozen=True, slots=True)
class AltUp:
    """`rows` of each token, n columns each; `active`: the one that layers compute."""

    rows: int
    active: int
    n: int
    eps: float

    @staticmethod
    def of(keys: Keys, eps: float) -> AltUp:
        """Raises BadHParam."""
        rows = keys.integer("altup.num_inputs", 2, MOST_ROWS, default=4)
        return AltUp(rows, keys.integer("altup.active_idx", 0, rows - 1, default=0), keys.n_embd, eps)

    def row(self, g: Builder, x: Value, index: int) -> Value:
        return columns(g, x, index * self.n, (index + 1) * self.n)

    def begin(self, g: Builder, x: Value) -> Value:
        """A token's embedding, and its projections with the same size: (T, rows * n)."""
        repeated = x
        for _ in range(self.rows - 2):
            repeated = join(g, repeated, x, 1)
        projected = head_matmul(g, repeated, "altup_proj", self.rows - 1, self.n)
        return join(g, x, rescale(g, projected, x, self.rows - 1, FLOOR), 1)

    def predict(self, g: Builder, block: str, x: Value) -> Value:
        """Each row with a sum of all rows added, weighted by what the active one says."""
        modalities = self._modalities(g, block, self.row(g, x, self.active))
        return mix(g, x, x, self.rows, matmul(g, modalities, f"{block}.altup_predict_coef", self.rows**2))

    def correct(self, g: Builder, block: str, predicted: Value, computed: Value) -> Value:
        """Each prediction with a share of how far the active one was from what the layer computed."""
        missed = add(g, computed, scale(g, self.row(g, predicted, self.active), -1.0))
        shares = matmul(g, self._modalities(g, block, computed), f"{block}.altup_correct_coef", self.rows)
        return mix(g, predicted, missed, self.rows, shares, offset=1.0)

    def end(self, g: Builder, x: Value) -> Value:
        """The mean of all rows, projected back to the size of the first: (T, n)."""
        first, others = self.row(g, x, 0), columns(g, x, self.n, self.rows * self.n)
        projected = rescale(g, head_matmul(g, others, "altup_unembd_proj", self.rows - 1, self.n), first, self.rows - 1, FLOOR)
        return scale(g, mix(g, first, projected, 1), 1.0 / self.rows)

    def _modalities(self, g: Builder, block: str, x: Value) -> Value:
        normal = scale(g, rms_norm(g, x, f"{block}.altup_router_norm", self.eps), 1.0 / self.n)
        return activation(g, "tanh", matmul(g, normal, f"{block}.altup_router", self.rows))
