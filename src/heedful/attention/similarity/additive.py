"""exp(leaky(q + k)): GAT and GATv2."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ..given import real
from ..transforms import broadcasts
from .base import Similarity, short, signature_of


class Additive(Similarity):
    r"""sim = exp(leaky(q_i + k_j)) for scalar q, k (GAT); with `weight` a, exp(a·leaky(q_i + k_j)) (GATv2).

    The query belongs to the listener i, the key to the speaker j. `weight` has one row a head, or one row.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 2], [1, 2, 0], nodes=3)
    >>> listener, speaker, x = torch.randn(3, 1), torch.randn(3, 1), torch.randn(3, 4)
    >>> out = heedful.attend(listener, speaker, x, similarity=heedful.Additive(), neighbors=graph)
    >>> torch.allclose(out, x[[2, 0, 1]])     # one neighbour each: it gets all the attention
    True
    """

    def __init__(self, slope: float = 0.2, weight: Tensor | None = None):
        real("Additive(slope", slope)
        if not 0 <= slope <= 1:
            raise ValueError(f"Additive(slope={slope}): the slope of the leaky ReLU must lie in [0, 1].")
        if weight is not None and (not isinstance(weight, Tensor) or weight.dim() not in (1, 2)):
            raise TypeError("Additive(weight=…): takes a tensor of shape (dim,) or (heads, dim).")
        if weight is not None and not weight.is_floating_point():
            raise TypeError(f"Additive(weight=…): must be floating point, got {weight.dtype}.")
        self.slope, self.weight = float(slope), weight
        self.kind = "additive" if weight is None else "additive_v2"
        self.hidden = weight is not None
        super().__init__(self.slope, signature_of(weight))

    def check(self, query_dim, key_dim, heads):
        wanted = 1 if self.weight is None else self.weight.shape[-1]
        if query_dim != wanted or key_dim != wanted:
            advice = "."
            if self.weight is None:
                advice = ": project them to one score a node, or pass weight= (GATv2)."
            raise ValueError(
                f"attend(): query has {query_dim} features and key has {key_dim}; "
                f"{self} takes {wanted} of each{advice}"
            )
        if self.weight is not None and self.weight.dim() == 2 and not broadcasts(self.weight.shape[0], heads):
            raise ValueError(f"Additive(weight=…): got {self.weight.shape[0]} rows for {heads} heads.")

    def scores(self, query, key):
        if self.weight is None:
            return F.leaky_relu(query + key.mT, self.slope)
        hidden = F.leaky_relu(query[..., :, None, :] + key[..., None, :, :], self.slope)
        return (hidden * _per_head_rows(self.weight, 4).to(hidden.dtype)).sum(-1)

    def pairs(self, query, key):
        hidden = F.leaky_relu(query + key, self.slope)
        if self.weight is None:
            return hidden.squeeze(-1)
        return (hidden * _per_head_rows(self.weight, 3).to(hidden.dtype)).sum(-1)

    def __repr__(self):
        return f"Additive(slope={short(self.slope)}{', weight' if self.weight is not None else ''})"


def _per_head_rows(weight: Tensor, ndim: int) -> Tensor:
    """Rows (heads, dim) viewed to broadcast against `ndim` dimensions, (heads, …, dim); one row as it is."""
    return weight if weight.dim() == 1 else weight.view(weight.shape[0], *[1] * (ndim - 2), weight.shape[1])
