"""What nodes know: a dense table of features, or a sparse one, and the two things layers do with either.

A sparse table is a bipartite `Graph`: node i listens to its features (a paper to its words), the weight of an
edge is the value of the feature. Then X W is what nodes hear of the rows of W, and dropout drops edges.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn, strided
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from ...attention.transforms import forward_mode_active
from ...graphs import Graph
from ...graphs.structure import lasting
from ...kernels import batching
from ...kernels.drop import drop, drop_positive
from ..checks import check_share

Features = Tensor | Graph
LANES = 16  # columns that matrix libraries compute at a time


def product(x: Features, weight: Tensor) -> Tensor:
    """X W for X (..., nodes, inputs), dense or sparse, and W (inputs, outputs).

    A sparse X is a torch tensor in CSR or COO layout, or a bipartite `Graph` from features to nodes. Only its
    nonzeros are ever touched, forward and backward. A dense one that is mostly zeros becomes sparse by
    `Graph.from_dense(x)`; do that once, not in every step.

    >>> x, weight = torch.eye(3, 5), torch.randn(5, 2)
    >>> torch.equal(product(Graph.from_dense(x), weight), x @ weight)
    True
    """
    x = as_features(x)
    if isinstance(x, Graph):
        return x.propagate(weight).to(weight.dtype)
    outputs = weight.shape[1]
    if outputs < LANES and x.device.type == "cpu" and batching.only_vmap() and not forward_mode_active():
        return batching.apply(_FewColumns, x, weight)
    if x.device.type != "cpu":
        return x @ weight
    # The same, laid out as the CPU's matrix libraries like it: of few columns, three times as fast.
    return F.linear(x, weight.T.contiguous())


class _FewColumns(torch.autograd.Function):
    """X W for many copies at once: with whole registers of columns a batched product takes a third of the
    time, and so does the one with Xᵀ when it is turned around.
    """

    @staticmethod
    def forward(x, weight):
        outputs = weight.shape[-1]
        return (x @ F.pad(weight, (0, LANES - outputs)))[..., :outputs]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.mT, (gradient.mT @ x).mT

    @staticmethod
    def vmap(info, in_dims, x, weight):
        x, weight = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip((x, weight), in_dims, strict=True)
        )
        if x.dim() != 3:  # rows of more than one kind are rows
            return batching.apply(_FewColumns, x.flatten(1, -2), weight).unflatten(1, x.shape[1:-1]), 0
        return batching.apply(_FewColumns, x, weight), 0


def dropout(x: Features, rate: float, training: bool = True) -> Features:
    """x with each number zeroed with probability `rate` and the rest scaled up by 1 / (1 − rate).

    In a sparse x only the nonzeros are drawn for, which changes nothing: a zero stays zero either way.

    >>> x = Graph.from_dense(torch.eye(1000))
    >>> dropout(x, 0.5).weight.unique()
    tensor([0., 2.])
    """
    check_share("dropout", rate=rate)
    x = as_features(x)
    return _dropped(x, rate) if training and rate > 0 else x


def _dropped(x: Features, rate: float) -> Features:
    if not isinstance(x, Graph):
        return _zeroed(x, rate)
    values = torch.ones(x.edges, device=x.device) if x.weight is None else x.weight
    return Graph(x.structure, weight=_zeroed(values, rate), sizes=x.sizes)


def _zeroed(x: Tensor, rate: float, positive: bool = False) -> Tensor:
    eager = type(x) in (Tensor, nn.Parameter) and not torch.compiler.is_compiling()
    if not eager or x.device.type != "cpu" or forward_mode_active():
        return F.dropout(F.relu(x) if positive else x, rate)
    way = drop_positive if positive else drop
    return way(x, rate, torch.randint(torch.iinfo(torch.int64).max, (1,)))


class Dropout(nn.Module):
    """x_n / (1 − rate) with probability 1 − rate, else 0; in training only. For dense and sparse features.

    The same distribution as `torch.nn.Dropout`; on the CPU its random numbers cost a twentieth.

    >>> layer = Dropout(0.5)
    >>> layer(torch.ones(1000)).unique(), layer.eval()(torch.ones(2))
    (tensor([0., 2.]), tensor([1., 1.]))
    """

    def __init__(self, rate: float = 0.5):
        super().__init__()
        check_share("Dropout", rate=rate)
        self.rate = rate

    def forward(self, x: Features, relu: bool = False) -> Features:
        """With `relu`, of relu(x), a dense table; on the CPU in one pass."""
        x, dropping = as_features(x), self.training and self.rate > 0
        if relu:
            assert isinstance(x, Tensor)
            return _zeroed(x, self.rate, positive=True) if dropping else F.relu(x)
        return _dropped(x, self.rate) if dropping else x

    def extra_repr(self) -> str:
        return f"{self.rate:g}"


def as_features(x) -> Features:
    """A dense tensor or a Graph as it is; a sparse tensor as a Graph, whose structure is worked out once."""
    if isinstance(x, Tensor) and x.layout is strided:
        return x
    if isinstance(x, Graph):
        return x
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x must be a tensor, dense or sparse, or a Graph of features; got {type(x).__name__}."
        )
    if x.layout not in (torch.sparse_csr, torch.sparse_coo) or x.dim() != 2:
        raise TypeError(
            f"x has {x.dim()} dimensions in layout {x.layout}; sparse features have two, in torch.sparse_csr "
            f"or torch.sparse_coo. x.to_dense() always does."
        )
    remembered = _SEEN.get(x)
    if remembered is None or remembered[0] != _state(x):
        with lasting(x), torch.no_grad():
            remembered = _SEEN[x] = (_state(x), _from_sparse(x))
    return remembered[1]


_SEEN: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _state(x: Tensor) -> tuple:
    """What changes when a sparse tensor is changed in place."""
    values = x.values() if x.layout is torch.sparse_csr else x._values()
    return (x._nnz(), values.data_ptr(), None if values.is_inference() else values._version)


def _from_sparse(x: Tensor) -> Graph:
    if x.layout is torch.sparse_csr:
        node = torch.arange(len(x), device=x.device).repeat_interleave(x.crow_indices().diff())
        feature, values = x.col_indices(), x.values()
    else:
        (node, feature), values = x._indices(), x._values()
    if not values.is_floating_point():
        values = values.float()
    nodes, features = x.shape
    return Graph.from_edges(feature, node, sources=features, targets=nodes, weight=values.detach())


def nodes_of(x: Features) -> int:
    return x.targets if isinstance(x, Graph) else x.shape[-2]


def width_of(x: Features) -> int:
    return x.sources if isinstance(x, Graph) else x.shape[-1]


def dense(x: Features, dtype: torch.dtype) -> Tensor:
    """The table itself, for what needs every number of it."""
    return x.adjacency().to(dtype) if isinstance(x, Graph) else x
