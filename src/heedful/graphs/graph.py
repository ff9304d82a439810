"""`Graph`: who listens to whom, and what is carried along each edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import batch, check, convert, edit, spectral
from .aggregate import aggregate
from .propagate import propagate
from .sample import Sample, sample
from .structure import Structure

_SAME: Any = ...  # tells "leave it as it is" from None, which drops


class Graph:
    """Directed edges j→i, "i listens to j", grouped by listener.

    Build one with `from_edges`, `from_edge_index`, `from_dense`, `from_scipy`, `from_networkx`, `complete`
    or `empty`. Listeners are the `targets` (rows), speakers the `sources` (columns); in a square graph both
    are the `nodes`, in a bipartite one they are different things. Duplicate edges count separately,
    self-loops are edges like any other, nodes without edges and graphs without nodes are allowed.

    Edges keep the numbers the caller gave them by position. What they carry is in that order:

        weight  (edges,) or (..., heads, edges)          multiplies the similarity, or what is propagated
        bias    (edges,) or (..., heads, edges)          is added to the log-score
        key     (edges, dim) or (..., heads, edges, dim) is added to the speaker's key as heard over that edge
        value   (edges, dim) or (..., heads, edges, dim) is added to the speaker's value

    All of them get gradients. A graph is not changed once made: every method returns a new one. Two graphs
    are equal only if they are the same object.

    >>> graph = Graph.from_edges([0, 0, 1], [1, 2, 2], nodes=3)
    >>> graph
    Graph(3 nodes, 3 edges)
    >>> graph.propagate(torch.tensor([[1.0], [2.0], [4.0]])).squeeze(-1)
    tensor([0., 1., 3.])
    """

    def __init__(
        self,
        structure: Structure,
        *,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        sizes: tuple[tuple[int, int], ...] | None = None,
    ):
        self.structure = structure
        self.weight, self.bias, self.key, self.value = weight, bias, key, value
        self.sizes = sizes or ((structure.targets, structure.sources),)

    # What it is made of

    @property
    def targets(self) -> int:
        """How many nodes listen (rows)."""
        return self.structure.targets

    @property
    def sources(self) -> int:
        """How many nodes speak (columns)."""
        return self.structure.sources

    @property
    def square(self) -> bool:
        """Whether there are as many listeners as speakers, so that both are the nodes."""
        return self.targets == self.sources

    @property
    def nodes(self) -> int:
        """How many nodes there are; a ValueError if the graph is bipartite."""
        if not self.square:
            raise ValueError(
                f"{self!r} is bipartite: it has {self.targets} targets and {self.sources} sources, and no "
                "one number of nodes. What you asked for needs a square graph."
            )
        return self.targets

    @property
    def edges(self) -> int:
        """How many edges there are."""
        return self.structure.edges

    @property
    def rowptr(self) -> Tensor:
        """Where the slots of each target begin, (targets + 1,)."""
        return self.structure.forward.rowptr

    @property
    def col(self) -> Tensor:
        """The source of each slot, (edges,), ascending within a row."""
        return self.structure.forward.col

    @property
    def edge(self) -> Tensor:
        """The edge number of each slot, (edges,), ascending among equal sources."""
        return self.structure.forward.edge

    @property
    def colptr(self) -> Tensor:
        """Where the slots of each source begin in the transpose, (sources + 1,)."""
        return self.structure.backward.rowptr

    @property
    def row(self) -> Tensor:
        """The target of each slot of the transpose, (edges,)."""
        return self.structure.backward.col

    @property
    def edge_transposed(self) -> Tensor:
        """The edge number of each slot of the transpose, (edges,)."""
        return self.structure.backward.edge

    @property
    def source(self) -> Tensor:
        """The source of each edge, int64, in the caller's order."""
        return self.structure.ends[0]

    @property
    def target(self) -> Tensor:
        """The target of each edge, int64, in the caller's order."""
        return self.structure.ends[1]

    @property
    def device(self) -> torch.device:
        """Where the connections are stored."""
        return self.rowptr.device

    @property
    def attributes(self) -> dict[str, Tensor]:
        """What the edges carry, by name; only what is there."""
        every = {name: getattr(self, name) for name in check.EDGE_DIMENSION}
        return {name: tensor for name, tensor in every.items() if tensor is not None}

    def __repr__(self) -> str:
        size = f"{self.targets} nodes" if self.square else f"{self.targets} targets, {self.sources} sources"
        graphs = f"{len(self.sizes)} graphs, " if len(self.sizes) > 1 else ""
        return f"Graph({', '.join([f'{graphs}{size}', f'{self.edges} edges', *self.attributes])})"

    def to(self, device=None, dtype: torch.dtype | None = None) -> Graph:
        """The same graph on another device, or what its edges carry in another dtype; the ends stay whole
        numbers. As with tensors, a dtype may stand alone, or a tensor for both.

        >>> graph = Graph.from_edges([0], [1], weight=[0.5]).to(torch.float16)
        >>> graph.weight, graph.col
        (tensor([0.5000], dtype=torch.float16), tensor([0], dtype=torch.int32))
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        elif isinstance(device, Tensor):
            device, dtype = device.device, device.dtype
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Graph.to(): dtype is {dtype}; edges carry floating point numbers.")
        moved = {name: tensor.to(device, dtype) for name, tensor in self.attributes.items()}
        structure = self.structure if device is None else self.structure.to(device)
        return Graph(structure, sizes=self.sizes, **moved)

    def with_edges(
        self,
        *,
        weight: Tensor | None = _SAME,
        bias: Tensor | None = _SAME,
        key: Tensor | None = _SAME,
        value: Tensor | None = _SAME,
    ) -> Graph:
        """The same connections with other attributes. What is not named stays; None drops.

        >>> graph = Graph.complete(2).with_edges(bias=torch.zeros(4))
        >>> graph, graph.with_edges(weight=torch.ones(8, 4), bias=None)
        (Graph(2 nodes, 4 edges, bias), Graph(2 nodes, 4 edges, weight))
        """
        given = {"weight": weight, "bias": bias, "key": key, "value": value}
        checked = {
            name: getattr(self, name)
            if new is _SAME
            else check.attribute(name, new, self.edges, self.device, where="with_edges()")
            for name, new in given.items()
        }
        return Graph(self.structure, sizes=self.sizes, **checked)

    # Building

    @classmethod
    def from_edges(
        cls,
        source,
        target,
        *,
        nodes: int | None = None,
        sources: int | None = None,
        targets: int | None = None,
        weight=None,
    ) -> Graph:
        """Edge e lets node target[e] listen to node source[e]. Lists, arrays or integer tensors.

        `nodes` makes a square graph, `sources` and `targets` a bipartite one. Without any of them the graph
        is square with as many nodes as the largest index asks for; with only one of the pair the other is
        inferred.

        >>> Graph.from_edges([0, 1, 1], [2, 0, 2], nodes=4, weight=[1.0, 0.5, 2.0])
        Graph(4 nodes, 3 edges, weight)
        >>> Graph.from_edges([0, 5], [0, 1], sources=6, targets=2)
        Graph(2 targets, 6 sources, 2 edges)
        """
        return convert.from_edges(
            cls, source, target, nodes, sources, targets, weight, where="Graph.from_edges()"
        )

    @classmethod
    def from_edge_index(cls, edge_index, *, nodes: int | tuple[int, int] | None = None, weight=None) -> Graph:
        """PyTorch Geometric's convention: sources above targets; `nodes` may be (sources, targets).

        >>> Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
        Graph(2 nodes, 2 edges)
        """
        return convert.from_edge_index(cls, edge_index, nodes, weight)

    @classmethod
    def from_dense(cls, matrix) -> Graph:
        """matrix[i, j] ≠ 0 means i listens to j; the matrix is (targets, sources).

        The values become the weights, through which gradients reach the non-zero entries. A boolean matrix
        gives no weights. Edges are numbered row by row.

        >>> Graph.from_dense([[0.0, 2.0], [1.0, 0.0]]).weight
        tensor([2., 1.])
        """
        return convert.from_dense(cls, matrix)

    @classmethod
    def from_scipy(cls, matrix) -> Graph:
        """matrix[i, j] stored means i listens to j, as in `from_dense`.

        Every stored entry is an edge: duplicates stay separate, stored zeros stay. Boolean entries give no
        weights, whole numbers become floats.

        >>> import scipy.sparse
        >>> Graph.from_scipy(scipy.sparse.csr_array([[0.0, 2.0], [0.0, 0.0]]))
        Graph(2 nodes, 1 edges, weight)
        """
        return convert.from_scipy(cls, matrix)

    @classmethod
    def from_networkx(cls, graph, *, weight: str | None = "weight") -> Graph:
        """u→v means v listens to u; an undirected edge goes both ways (a self-loop once).

        Nodes are numbered in the order of graph.nodes. `weight` names the edge attribute to read: where an
        edge lacks it the weight is 1, and if all lack it, or `weight` is None, the graph has no weights.

        >>> import networkx
        >>> Graph.from_networkx(networkx.path_graph(3))
        Graph(3 nodes, 4 edges)
        """
        return convert.from_networkx(cls, graph, weight)

    @classmethod
    def complete(cls, nodes: int, *, self_loops: bool = True) -> Graph:
        """Everyone listens to everyone, to themselves too unless self_loops is False.

        >>> Graph.complete(3), Graph.complete(3, self_loops=False)
        (Graph(3 nodes, 9 edges), Graph(3 nodes, 6 edges))
        """
        nodes = check.count("nodes", nodes, where="Graph.complete()")
        everyone = torch.ones(nodes, nodes, dtype=torch.bool)
        return cls.from_dense(everyone if self_loops else everyone.fill_diagonal_(False))

    @classmethod
    def empty(cls, nodes: int) -> Graph:
        """Nobody listens to anybody.

        >>> Graph.empty(3)
        Graph(3 nodes, 0 edges)
        """
        return cls.from_edges([], [], nodes=nodes)

    @classmethod
    def batch(cls, graphs: Sequence[Graph]) -> Graph:
        """Graphs side by side as one graph without edges between them; `unbatch` takes them apart again.

        All must carry the same attributes, alike but for the number of edges.

        >>> both = Graph.batch([Graph.complete(2), Graph.empty(1)])
        >>> both, both.batch_index
        (Graph(2 graphs, 3 nodes, 4 edges), tensor([0, 0, 1]))
        """
        return batch.batch(Graph, graphs)

    @property
    def batch_index(self) -> Tensor:
        """Which graph of the batch each (listening) node belongs to, int64; all 0 outside a batch."""
        return batch.batch_index(self)

    def unbatch(self) -> list[Graph]:
        """The graphs `batch` put together, each with its attributes; just this one if it is no batch.

        >>> Graph.batch([Graph.complete(2), Graph.empty(1)]).unbatch()
        [Graph(2 nodes, 4 edges), Graph(1 nodes, 0 edges)]
        """
        return batch.unbatch(self)

    # Converting

    def to_edge_index(self) -> Tensor:
        """(2, edges) int64, sources above targets, in the caller's order."""
        return torch.stack([self.source, self.target])

    def to_dense(self) -> Tensor:
        """The matrix of `adjacency`."""
        return self.adjacency()

    def to_scipy(self):
        """A scipy csr_array (targets, sources); duplicates stay separate, missing weights are ones."""
        return convert.to_scipy(self)

    def to_networkx(self):
        """A networkx DiGraph, or MultiDiGraph if there are duplicate edges, with edges source → target."""
        return convert.to_networkx(self)

    def to_torch_sparse(self) -> Tensor:
        """A torch CSR tensor (targets, sources); duplicates add up, gradients reach the weights."""
        return convert.to_torch_sparse(self)

    # Editing

    def with_self_loops(
        self, *, weight: float = 1.0, bias: float = 0.0, key: float = 0.0, value: float = 0.0
    ) -> Graph:
        """Add a loop to every node that has none; the arguments fill the attributes of the new loops.

        New loops are numbered after the existing edges. A graph without weights stays without, unless the
        loops are to weigh something else than 1.

        >>> Graph.from_edges([0, 1], [0, 0], nodes=3).with_self_loops().to_edge_index()
        tensor([[0, 1, 1, 2],
                [0, 0, 1, 2]])
        """
        _ = self.nodes  # a bipartite graph has no selves: say so
        return edit.with_self_loops(self, {"weight": weight, "bias": bias, "key": key, "value": value})

    def without_self_loops(self) -> Graph:
        """Drop every edge from a node to itself.

        >>> Graph.complete(3).without_self_loops()
        Graph(3 nodes, 6 edges)
        """
        _ = self.nodes
        return self.filter(self.source != self.target)

    def reverse(self) -> Graph:
        """Turn every edge round; edges keep their numbers and attributes.

        >>> Graph.from_edges([0], [1]).reverse().to_edge_index().tolist()
        [[1], [0]]
        """
        sizes = tuple((sources, targets) for targets, sources in self.sizes)
        return Graph(self.structure.reverse(), sizes=sizes, **self.attributes)

    def undirected(self) -> Graph:
        """Add the reverse of every edge whose reverse is missing, with the same attributes.

        New edges are numbered after the rest. Where both directions exist nothing changes, whatever their
        weights and multiplicities.

        >>> Graph.from_edges([0, 1, 1], [1, 0, 2]).undirected().to_edge_index()
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
        """
        return edit.undirected(self)

    def coalesce(self) -> Graph:
        """Merge duplicate edges: their weights add up; without weights their number is forgotten.

        Edges are renumbered by target, then source. Bias, key and value have no rule for merging: a
        ValueError.

        >>> Graph.from_edges([0, 0], [1, 1], weight=[1.0, 2.0]).coalesce().weight
        tensor([3.])
        """
        return edit.coalesce(self)

    def __and__(self, other: Graph) -> Graph:
        """The edges whose ends are also joined in `other`, with what they carry.

        >>> (Graph.from_edges([0, 1], [1, 2]) & Graph.from_edges([1], [2], nodes=3)).to_edge_index().tolist()
        [[1], [2]]
        """
        return edit.intersection(self, other) if isinstance(other, Graph) else NotImplemented

    def __or__(self, other: Graph) -> Graph:
        """All edges, then those of `other` whose ends are not joined yet. A batch whose graphs are joined by
        them is one graph from then on.

        >>> (Graph.from_edges([0], [1]) | Graph.from_edges([0, 1], [1, 0])).to_edge_index().tolist()
        [[0, 1], [1, 0]]
        """
        return edit.union(self, other) if isinstance(other, Graph) else NotImplemented

    def filter(self, keep) -> Graph:
        """Keep the edges at which the boolean `keep` (edges,), in the caller's order, is true. Nodes stay.

        >>> Graph.complete(2).filter([True, False, False, True]).to_edge_index().tolist()
        [[0, 1], [0, 1]]
        """
        return edit.filter_edges(self, keep)

    def subgraph(self, nodes) -> Graph:
        """The given nodes (numbers, or a boolean mask) and the edges between them; nodes[k] becomes node k.

        >>> Graph.from_edges([0, 1, 2], [1, 2, 0]).subgraph([2, 1]).to_edge_index().tolist()
        [[1], [0]]
        """
        return edit.subgraph(self, nodes)

    def permute(self, order) -> Graph:
        """Rename the nodes: node order[k] becomes node k. Edges keep their numbers; a batch stays one if each
        of its graphs keeps its place.

        >>> Graph.from_edges([0], [1], nodes=3).permute([2, 0, 1]).to_edge_index().tolist()
        [[1], [2]]
        """
        return edit.permute(self, order)

    def local_order(self) -> Tensor:
        """An order for `permute` that puts nodes next to those they listen to, (nodes,).

        Reverse Cuthill–McKee. Whoever gathers from a graph so numbered mostly finds in the caches what its
        last listener asked for. It changes no result: permute the graph and the nodes' features alike.

        >>> ring = Graph.from_edges([0, 3, 1, 4], [3, 1, 4, 2])                       # 0 3 1 4 2 in a row
        >>> ring.permute(ring.local_order()).to_edge_index().diff(dim=0).abs().tolist()
        [[1, 1, 1, 1]]
        """
        return edit.local_order(self)

    # Degrees and matrices

    def degree(self, *, weighted: bool = False) -> Tensor:
        """How many edges each target listens over, (targets,) int64; or, weighted, the sum of their weights.

        >>> Graph.from_edges([0, 1, 1], [2, 2, 2], nodes=3).degree()
        tensor([0, 0, 3])
        """
        return spectral.in_degree(self, weighted)

    def in_degree(self, *, weighted: bool = False) -> Tensor:
        """The same as `degree`."""
        return spectral.in_degree(self, weighted)

    def out_degree(self, *, weighted: bool = False) -> Tensor:
        """Over how many edges each source is heard, (sources,); or, weighted, the sum of their weights."""
        return spectral.in_degree(self.reverse(), weighted)

    def adjacency(self) -> Tensor:
        """A[i, j] = Σ of the weights (1 without weights) of the edges j→i: dense, (..., targets, sources).

        >>> Graph.from_edges([0, 0, 1], [1, 1, 0]).adjacency()
        tensor([[0., 1.],
                [2., 0.]])
        """
        return spectral.adjacency(self)

    def laplacian(self, kind: str = "combinatorial", *, sparse: bool = False) -> Tensor | Graph:
        """D − A ("combinatorial"), I − D^−½ A D^−½ ("symmetric") or I − D^−1 A ("random_walk").

        D holds the weighted in-degrees, the row sums of A. A node of degree 0 has a zero row in all three
        (its 1 on the diagonal of I is left out). A negative degree has no root: "symmetric" gives NaN
        there. With sparse=True the answer is a Graph whose `propagate(x)` is L x. Gradients reach the
        weights.

        >>> Graph.from_edges([0, 1], [1, 0], nodes=3).laplacian()
        tensor([[ 1., -1.,  0.],
                [-1.,  1.,  0.],
                [ 0.,  0.,  0.]])
        """
        result = spectral.laplacian(self, kind)
        return result if sparse else result.adjacency()

    def walks(self, length: int) -> Tensor:
        """A^length: entry (i, j) counts the walks of that length from j to i.

        With weights a walk counts as the product of its weights. Without weights the count is exact, int64,
        and an OverflowError if it does not fit.

        >>> Graph.complete(3, self_loops=False).walks(2)
        tensor([[2, 1, 1],
                [1, 2, 1],
                [1, 1, 2]])
        """
        return spectral.walks(self, length)

    def normalized(self, kind: str = "symmetric") -> Graph:
        """Weights w_ij / √(d_i d_j) ("symmetric") or w_ij / d_i ("row"); 0 where d is 0.

        d is the weighted in-degree. No self-loops are added: `graph.with_self_loops().normalized()` is what
        a GCN uses. Negative degrees have no root and give NaN. Gradients reach the weights.

        >>> Graph.complete(4).normalized("row").weight[0]
        tensor(0.2500)
        """
        return spectral.normalized(self, kind)

    # Listening

    def propagate(self, x: Tensor) -> Tensor:
        """out_i = Σ_{j→i} w_ij x_j, with w = 1 if the graph has no weights; 0 for nodes that hear nobody.

        x is (..., sources, features), the result (..., targets, features). What stands before the last two
        dimensions of x and before the last of the weight is broadcast: weight (heads, edges) goes with
        x (..., heads, sources, features). Bias, key and value belong to attention and are not used.
        Nothing of size edges × features is stored, forward or backward. Half precision sums in float32.

        >>> graph = Graph.from_edges([0, 1], [1, 1], weight=[1.0, 0.5])
        >>> graph.propagate(torch.tensor([[2.0], [4.0]]))
        tensor([[0.],
                [4.]])
        """
        return propagate(self, x, self.weight)

    def aggregate(self, x: Tensor, kind: str = "sum") -> Tensor:
        """out_i = the sum, mean, max, min, median or std of x_j over j→i, by feature; 0 if there are none.

        The weights count in the sum and the mean (Σ w x / Σ w, 0 where the weights sum to 0), nowhere else.
        The median of an even count is the mean of the two middle values. The std is the population's
        (divisor n); its gradient is 0 where it is 0. The gradient of a max or min that several neighbours
        attain goes to the first of them, the one with the lowest number. NaN is never outvoted.
        x is (..., sources, features), the result (..., targets, features).

        >>> graph = Graph.from_edges([0, 1, 2], [0, 0, 0], nodes=3)
        >>> graph.aggregate(torch.tensor([[1.0], [5.0], [3.0]]), "median").squeeze(-1)
        tensor([3., 0., 0.])
        """
        return aggregate(self, x, kind)

    def sample(
        self,
        seeds,
        fanout: int | Sequence[int],
        *,
        generator: torch.Generator | None = None,
        replace: bool = False,
    ) -> Sample:
        """Up to `fanout` incoming edges of each seed, then of the nodes they lead to, and so on.

        A list gives one number a hop, a number alone means one hop; −1 takes all. A node draws once, in the
        hop that first reaches it, without replacement unless `replace` (then exactly `fanout` edges, some
        perhaps twice, if it has any at all). The same generator state gives the same sample. See `Sample`
        for what comes back.

        >>> Graph.complete(10).sample([7, 3], [2, 2]).nodes[:2]
        tensor([7, 3])
        """
        return sample(self, seeds, fanout, generator, replace)
