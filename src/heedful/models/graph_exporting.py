"""A graph model as a function of tensors alone: what `torch.export` takes, for graphs of any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..graphs import Graph


class OverEdges(nn.Module):
    """f(x, edge_index) = model(x, Graph.from_edge_index(edge_index)): one program for any graph.

    >>> import torch
    >>> from torch.export import Dim, export
    >>> from heedful.models import GCN, OverEdges, portable
    >>> model = OverEdges(GCN(16, 32, 3).eval())
    >>> x, edge_index = torch.randn(5, 16), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    >>> program = export(model, (x, edge_index), dynamic_shapes=({0: Dim.AUTO}, {1: Dim.AUTO}))
    >>> program = portable(program)                      # runs where heedful is not installed
    >>> program.module()(torch.randn(9, 16), torch.randint(9, (2, 30))).shape
    torch.Size([9, 3])

    Wrap a model in eval mode. Indices must lie within the nodes of x: a program cannot look. Laplacian
    positions cannot be exported; give a `GraphTransformer` without.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        if getattr(model, "positions", 0):
            raise ValueError(
                "OverEdges: eigenvectors are worked out outside of torch's programs; take a GraphTransformer "
                "with positions=0."
            )
        self.model = model

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_features: Tensor | None = None,
    ) -> Tensor:
        """x (nodes, features), edge_index (2, edges), sources above targets, edge_features (edges, width)."""
        graph = Graph.from_edge_index(edge_index, nodes=x.shape[-2], weight=edge_weight)
        return self.model(x, graph) if edge_features is None else self.model(x, graph, edge_features)


def portable(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The same program of torch's own operators only, at their speed: it needs no heedful to run."""
    from ..kernels.sparse import Structure
    from ..kernels.sparse_composite import sparse_composite
    from ..kernels.sparse_operators import _forward_outputs

    def propagate(rowptr, col, edge, colptr, row, edge_transposed, x, weight):
        every = torch.arange(col.shape[0], dtype=rowptr.dtype, device=col.device)
        heard = x.index_select(0, col)
        if weight is not None:
            heard = heard * weight.index_select(0, edge).unsqueeze(-1)
        out = x.new_zeros(rowptr.shape[0] - 1, *x.shape[1:])
        return out.index_add(0, torch.searchsorted(rowptr[1:], every, right=True), heard)

    def attention(
        kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value,
        slope, degree, dropout, seed, implied, save,
    ):  # fmt: skip
        out = sparse_composite(
            kind, q, k, v, Structure(rowptr, col, edge), a=a, bias=bias, weight=weight, key=key, value=value,
            slope=slope, degree=degree, dropout=dropout, seed=seed, implied=implied,
        )  # fmt: skip
        return out, *_forward_outputs(kind, v, rowptr, col, bias, weight, key, value, save)[1:]

    operators = torch.ops.heedful
    return program.run_decompositions(
        {operators.propagate.default: propagate, operators.sparse_forward.default: attention}
    )
