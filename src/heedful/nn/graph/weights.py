"""α of every edge, for pictures: read off the operator itself, so they are the weights it used."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention import attend
from ...attention.similarity import Similarity
from ...graphs import Graph


def attention_weights(
    where: str, query: Tensor, key: Tensor, *, similarity: Similarity, neighbors: Graph
) -> Graph:
    """The graph with α as its weights, (..., heads, edges) in the caller's order: out = α.propagate(values).

    An edge adds its own `value` to what is heard over it: out_i = Σ_e α_e (v_j + value_e). So α_e is the
    derivative of out_i by value_e, whatever the similarity.
    """
    if not isinstance(neighbors, Graph):
        raise TypeError(f"{where}: the weights of edges need a Graph, got {neighbors!r}.")
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    with torch.inference_mode(False), torch.enable_grad():
        # Copies, since what was made in inference mode may not be differentiated.
        query, key = (x.detach().clone() for x in (query, key))
        own = torch.zeros(*lead, neighbors.edges, 1, dtype=key.dtype, device=key.device, requires_grad=True)
        value = key.new_zeros(*key.shape[:-1], 1)
        out = attend(query, key, value, similarity=similarity, neighbors=neighbors.with_edges(value=own))
        (alpha,) = torch.autograd.grad(out.sum(), own)
    return neighbors.with_edges(weight=alpha.squeeze(-1), bias=None, key=None, value=None)
