"""The step a GPU records, for few rows: a token of a small model takes as long as its kernels are many, so
norms, activations, residuals, turns and the cache are computed inside the products beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..kernels import few_rows
from ..nn import Attention
from .decoding_cuda import Steady

if TYPE_CHECKING:
    from .gpt import GPT


def few_rows_decoder(gpt: GPT, rows: int, room: int) -> FewRows | None:
    """None where there are many rows, or a part the kernels do not know."""
    dim = gpt.embedding.weight.shape[1]
    if not few_rows.suits(list(gpt.parameters()), rows, dim):
        return None
    norms = [module for module in gpt.modules() if isinstance(module, (nn.LayerNorm, nn.RMSNorm))]
    known = all(norm.normalized_shape == (dim,) and norm.eps is not None for norm in norms)
    known &= all(block.feed_forward.activation in few_rows.ACTIVATIONS for block in gpt.blocks)
    return FewRows(gpt, rows, room) if known else None


class FewRows(Steady):
    """`Steady` in five kernels a layer."""

    def __init__(self, gpt: GPT, rows: int, room: int):
        self.masked = False  # whether torch attends somewhere, over all of the cache
        super().__init__(gpt, rows, room)
        self.final = _norm(gpt.norm)

    def step(self) -> Tensor:
        x = few_rows.embedding(self.tokens, self.embedding, self.places, self.place)  # (rows, dim)
        heard = (self.all <= self.place)[None, None, None, :] if self.masked else self.place
        for block in self.blocks:
            x = block(x, heard)
        return few_rows.linear(x, self.head, norm=self.final, place=self.place)[:, None]

    def _block(self, block) -> Callable[[Tensor, Tensor], Tensor]:
        listen, listened = _linears(block.attention.query_key_value, block.attention.output)
        think, thought = _linears(block.feed_forward.input, block.feed_forward.output)
        before, between = _norm(block.attention_norm), _norm(block.feed_forward_norm)
        heed, activation = self._heed(block.attention), block.feed_forward.activation

        def step(x: Tensor, heard: Tensor) -> Tensor:
            z = few_rows.linear(x, *listen, norm=before)
            x = few_rows.linear(heed(z, heard), *listened, residual=x)
            z = few_rows.linear(x, *think, norm=between, activation=activation)
            return few_rows.linear(z, *thought, residual=x)

        return step

    def _heed(self, layer: Attention) -> Callable[[Tensor, Tensor], Tensor]:
        scale: Any = layer.similarity.resolved(layer.head_dim)
        elsewhere = isinstance(scale, Tensor) and scale.device != self.place.device
        if self.room > few_rows.MOST_KEYS or layer.head_dim > few_rows.WIDEST_HEAD or elsewhere:
            self.masked = True
            return super()._heed(layer)
        cache, turned, added = self._memory(layer)
        turns = None if turned is None else few_rows.Turns(turned.cos, turned.sin, turned.interleaved)
        table = None if added is None else added[0, :, 0]  # (heads or 1, room)

        def heed(z: Tensor, heard: Tensor) -> Tensor:
            return few_rows.attention(
                z, cache, self.place, layer.heads, scale=scale, turns=turns, table=table
            )

        return heed


def _linears(*layers: nn.Linear) -> list[tuple[Tensor, Tensor | None]]:
    return [(layer.weight, layer.bias) for layer in layers]


def _norm(layer: Any) -> few_rows.Norm:
    if isinstance(layer, nn.RMSNorm):
        return few_rows.Norm("rms", layer.weight, None, layer.eps)  # type: ignore[arg-type]  # None was refused
    return few_rows.Norm("layer", layer.weight, layer.bias, layer.eps)
