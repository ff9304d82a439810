"""The edges a layer runs over, one by one in plain torch: judge of `grouped.py`, and most of `traced.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graphs import Graph
from ...graphs.spectral import invert

# PyG's names of reductions, and torch's.
REDUCTIONS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "amax", "min": "amin", "mul": "prod"}


class Edges:
    """Edge e carries something from node `source[e]` to node `target[e]`.

    A layer that treats self-loops has those of the caller taken out, or silenced, and a loop for each of the
    first `loops` nodes after the caller's edges; for other layers `loops` is None. What edge e carries is
    added up in row `into[e]` of `rows`, of which the first `targets` count: silenced edges go to one more.
    """

    source: Tensor
    target: Tensor
    into: Tensor
    targets: int
    rows: int
    given: int  # edges of the caller
    loops: int | None

    def index_like(self, given: Tensor | Graph) -> Tensor:
        """The edges as a (2, edges) tensor: the caller's own, unless loops were treated."""
        if self.loops is None and isinstance(given, Tensor):
            return given
        dtype = given.dtype if isinstance(given, Tensor) else torch.int64
        return torch.stack([self.source, self.target]).to(dtype)

    # What edges carry: in the caller's order when given, then in step with `source` and `target`

    def features(self, given: Tensor, fill: float | Tensor | str) -> Tensor:
        """Edge features (edges, ·). A loop gets `fill`, or what that makes of the edges into its node."""
        if self.loops is None:
            return given
        kept = self._kept(given)
        if isinstance(fill, str):
            loops = self._reduce(kept, fill)[: self.loops]
        elif isinstance(fill, Tensor):
            loops = fill.to(kept).expand(self.loops, kept.shape[1])
        else:
            loops = kept.new_full((self.loops, kept.shape[1]), fill)
        return torch.cat([kept, loops])

    def weights(self, given: Tensor, fill: float) -> Tensor:
        """Edge weights (edges,). A node's loop keeps the weight it had, or gets `fill`."""
        if self.loops is None:
            return given
        return torch.cat([self._kept(given), self._loop_weights(given, fill)])

    def _kept(self, given: Tensor) -> Tensor:
        raise NotImplementedError

    def _loop_weights(self, given: Tensor, fill: float) -> Tensor:
        raise NotImplementedError

    def _reduce(self, values: Tensor, kind: str) -> Tensor:
        """What the values of the caller's edges into each node come to, (targets, ·)."""
        into = self.into[: values.shape[0], None].expand_as(values)
        start = values.new_full((self.rows, values.shape[1]), float(kind == "mul"))
        reduced = start.scatter_reduce(0, into, values, REDUCTIONS[kind], include_self=kind == "mul")
        return reduced[: self.targets]

    # Listening

    def scale(self, weight: Tensor | None, power: float, dtype: torch.dtype) -> Tensor:
        """d_i^−power, d_i = Σ_{j→i} w_ij, or the number of edges into i; 0 where d_i is 0. (targets, 1)"""
        return invert(self._degree(weight, dtype), power).unsqueeze(-1)

    def _degree(self, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        if weight is None:
            weight = torch.ones(self.source.shape[0], dtype=dtype, device=self.source.device)
        return self.add(weight, -1)

    def propagate(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """out_i = Σ_{j→i} w_ij x_j, from (..., sources, features) to (..., targets, features)."""
        heard = x.index_select(-2, self.source)
        return self.add(heard if weight is None else weight.unsqueeze(-1) * heard, -2)

    def aggregate(self, x: Tensor, kind: str) -> Tensor:
        """The sum, mean, max, min or variance of what a target hears, by feature; 0 if it hears nothing."""
        if kind == "sum":
            return self.propagate(x, None)
        if kind == "mean":
            return self.propagate(x, None) * self.scale(None, 1.0, x.dtype)
        if kind == "var":
            return self.aggregate(x.square(), "mean") - self.aggregate(x, "mean").square()
        heard = x.index_select(-2, self.source)
        start = heard.new_zeros(*heard.shape[:-2], self.rows, heard.shape[-1])
        into = self.into.unsqueeze(-1).expand_as(heard)
        reduced = start.scatter_reduce(-2, into, heard, REDUCTIONS[kind], include_self=False)
        return reduced[..., : self.targets, :]

    def softmax(self, score: Tensor) -> Tensor:
        """exp(score_e) / Σ_e' exp(score_e') over the edges e' that share e's target, (heads, edges)."""
        into = self.into.expand_as(score)
        top = score.new_full((*score.shape[:-1], self.rows), -torch.inf)
        top = top.scatter_reduce(-1, into, score.detach(), "amax")
        power = (score - top.gather(-1, into)).exp()
        total = self.add(power, -1, all_rows=True)
        return power / total.gather(-1, into)

    def add(self, heard: Tensor, dim: int, all_rows: bool = False) -> Tensor:
        """What the edges carry, added up by target."""
        shape = list(heard.shape)
        shape[dim] = self.rows
        total = heard.new_zeros(shape).index_add(dim, self.into, heard)
        return total if all_rows else total.narrow(dim, 0, self.targets)
