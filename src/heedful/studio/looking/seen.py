"""Weights, what they are weights of, and the call that would compute with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ...attention import Plan, explain
from ...graphs import Graph
from ...lab.looking import attention_view


@dataclass(frozen=True)
class Call:
    """The shapes and choices of one `attend`, to be planned."""

    heads: int
    length: int
    dim: int
    similarity: Any
    neighbors: Any
    position: Any = None
    value_dim: int | None = None

    def plan(self, length: int | None = None) -> Plan:
        """The plan on this machine's CPU; of another length, unless a graph says how many there are."""
        if isinstance(self.neighbors, Graph):
            length = None
        shape = (1, self.heads, length or self.length)
        query = torch.empty(*shape, self.dim, device="meta")
        value = torch.empty(*shape, self.value_dim or self.dim, device="meta")
        return explain(
            query,
            query,
            value,
            similarity=self.similarity,
            neighbors=self.neighbors,
            position=self.position,
            device="cpu",
        )

    def __str__(self) -> str:
        return f"{self.similarity}, {self.neighbors}"


@dataclass(frozen=True)
class Seen:
    """A layer's weights each, (heads, tokens, tokens); the tokens; what to say about them."""

    layers: Sequence[Tensor]
    tokens: list[str]
    about: list[str]
    call: Call
    shown: dict[str, Any] = field(default_factory=dict)  # how, for `attention_view`

    def pruned(self, most: int) -> Seen:
        """Of a longer input, the tokens that are heard most, and the last."""
        count = len(self.tokens)
        if count <= most:
            return self
        heard = torch.stack([layer.mean(0).sum(0) for layer in self.layers]).mean(0)  # (tokens,)
        heard[-1] = torch.inf
        keep = heard.topk(most).indices.sort().values
        layers = [layer[:, keep][:, :, keep] for layer in self.layers]
        share = torch.stack([layer.sum(-1).mean() for layer in layers]).mean()
        among = f"{100 * float(share):.0f} % of what they hear is among them"
        said = f"the {most} of {count} tokens that are heard most; {among}"
        numbers = (keep + 1).tolist()
        return replace(
            self,
            layers=layers,
            tokens=[self.tokens[place] for place in keep.tolist()],
            about=[*self.about, said],
            shown={**self.shown, "numbers": numbers},
        )

    def view(self) -> dict[str, Any]:
        return attention_view(self.layers, self.tokens, about="; ".join(self.about), **self.shown)
