"""Edited graphs: the edges that should be there, with the attributes that belong to them."""

import pytest
import torch

from heedful.graphs import Graph


def loaded(graph):
    """Attributes that tell which edge they belong to."""
    number = torch.arange(1.0, graph.edges + 1)
    return graph.with_edges(
        weight=number,
        bias=torch.stack([number, -number]),
        key=number[:, None],
        value=number[None, :, None] * torch.ones(2, 1, 3),
    )


def edge_list(graph):
    """(source, target, weight, bias, key, value) of every edge, in order."""
    rows = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    return [
        (
            s,
            t,
            graph.weight[e].item(),
            *graph.bias[:, e].tolist(),
            graph.key[e].item(),
            graph.value[1, e, 2].item(),
        )
        for e, (s, t) in enumerate(rows)
    ]


def test_filter_keeps_edges_with_their_attributes(tangled):
    graph = loaded(tangled)
    keep = torch.rand(graph.edges) < 0.5
    kept = graph.filter(keep)
    assert edge_list(kept) == [entry for entry, stays in zip(edge_list(graph), keep, strict=True) if stays]
    rebuilt = Graph.from_edges(kept.source, kept.target, nodes=10)
    assert all(
        torch.equal(a, b) for a, b in zip(kept.structure.forward, rebuilt.structure.forward, strict=True)
    )
    with pytest.raises(TypeError, match="keep must be boolean"):
        graph.filter(keep.long())
    with pytest.raises(ValueError, match=r"keep has shape \(2,\)"):
        graph.filter([True, False])


def test_self_loops_only_where_missing(tangled):
    graph = loaded(tangled)
    with_loops = graph.with_self_loops(weight=9.0, key=7.0)
    assert edge_list(with_loops)[: graph.edges] == edge_list(graph)
    had = {s for s, t, *_ in edge_list(graph) if s == t}
    assert edge_list(with_loops)[graph.edges :] == [(i, i, 9, 0, 0, 7, 0) for i in range(10) if i not in had]
    assert (with_loops.without_self_loops().source != with_loops.without_self_loops().target).all()
    assert edge_list(with_loops.without_self_loops()) == edge_list(graph.without_self_loops())
    bare = Graph.empty(2)
    assert bare.with_self_loops().weight is None
    assert Graph.from_edges([0], [1]).with_self_loops(weight=2.0).weight.tolist() == [1, 2, 2]


def test_reverse_turns_edges_and_keeps_numbers(tangled):
    graph = loaded(tangled)
    assert edge_list(graph.reverse()) == [(t, s, *rest) for s, t, *rest in edge_list(graph)]
    assert edge_list(graph.reverse().reverse()) == edge_list(graph)
    assert torch.equal(graph.reverse().colptr, graph.rowptr) and torch.equal(
        graph.reverse().rowptr, graph.colptr
    )
    bipartite = Graph.from_edges([3], [0], sources=4, targets=1).reverse()
    assert (bipartite.targets, bipartite.sources) == (4, 1)


def test_undirected_adds_what_is_missing(tangled):
    graph = loaded(tangled)
    both = graph.undirected()
    pairs = {(s, t) for s, t, *_ in edge_list(graph)}
    missing = [(t, s, *rest) for s, t, *rest in edge_list(graph) if (t, s) not in pairs]
    assert edge_list(both) == edge_list(graph) + missing
    assert edge_list(both.undirected()) == edge_list(both)


def test_coalesce_adds_weights_and_forgets_counts(tangled):
    tangled = tangled.with_edges(weight=tangled.weight.clone().requires_grad_())
    simple = tangled.coalesce()
    pairs = list(zip(simple.target.tolist(), simple.source.tolist(), strict=True))
    assert pairs == sorted(set(pairs)) and len(pairs) < tangled.edges
    torch.testing.assert_close(simple.to_dense(), tangled.to_dense())
    assert (simple.weight.sum() * 2).backward() is None and (tangled.weight.grad == 2).all()
    assert tangled.with_edges(weight=None).coalesce().to_dense().max() == 1
    with pytest.raises(ValueError, match="carries bias, and there is no rule"):
        tangled.with_edges(bias=torch.zeros(30)).coalesce()


def test_subgraph_and_permute_relabel(tangled):
    graph = loaded(tangled)
    order = torch.randperm(10)
    place = {int(node): k for k, node in enumerate(order)}
    expected = [(place[s], place[t], *rest) for s, t, *rest in edge_list(graph)]
    assert edge_list(graph.permute(order)) == expected
    torch.testing.assert_close(graph.permute(order).to_dense(), graph.to_dense()[order][:, order])
    some = order[:6]
    inside = [entry for entry in expected if entry[0] < 6 and entry[1] < 6]
    assert edge_list(graph.subgraph(some)) == inside
    mask = torch.zeros(10, dtype=torch.bool)
    mask[some] = True
    assert graph.subgraph(mask).edges == len(inside)
    assert graph.subgraph([]).nodes == 0
    with pytest.raises(ValueError, match="lists node 3 more than once"):
        graph.subgraph([3, 3])
    with pytest.raises(ValueError, match=r"nodes\[1\] is 10"):
        graph.subgraph([3, 10])
    with pytest.raises(ValueError, match="order has 2 entries, the graph 10 nodes"):
        graph.permute([0, 1])
    with pytest.raises(ValueError, match=r"mask has shape \(3,\)"):
        graph.subgraph([True, False, True])


def test_batch_and_unbatch_are_inverse(seed):
    parts = [
        loaded(Graph.from_edge_index(torch.randint(0, n, (2, e)), nodes=n))
        for n, e in [(4, 9), (3, 0), (5, 7)]
    ]
    whole = Graph.batch(parts)
    assert repr(whole).startswith("Graph(3 graphs, 12 nodes, 16 edges")
    assert whole.batch_index.tolist() == [0] * 4 + [1] * 3 + [2] * 5
    weights = [p.with_edges(bias=None, key=None, value=None).to_dense() for p in parts]
    torch.testing.assert_close(whole.to_dense(), torch.block_diag(*weights))
    for part, back in zip(parts, whole.unbatch(), strict=True):
        assert edge_list(back) == edge_list(part) and back.nodes == part.nodes
        assert all(
            torch.equal(a, b) for a, b in zip(back.structure.forward, part.structure.forward, strict=True)
        )
    nested = Graph.batch([Graph.batch(parts[:2]), parts[2]])
    assert torch.equal(nested.batch_index, whole.batch_index)


def test_batch_survives_editing(seed):
    parts = [Graph.complete(3, self_loops=False), Graph.from_edges([0], [1])]
    loops = Graph.batch(parts).with_self_loops()
    assert loops.batch_index.tolist() == [0, 0, 0, 1, 1]
    for part, back in zip(parts, loops.unbatch(), strict=True):
        assert torch.equal(back.to_edge_index(), part.with_self_loops().to_edge_index())
    bipartite = [
        Graph.from_edges([2], [0], sources=3, targets=1),
        Graph.from_edges([0, 1], [1, 1], sources=2, targets=2),
    ]
    for part, back in zip(bipartite, Graph.batch(bipartite).reverse().unbatch(), strict=True):
        assert torch.equal(back.to_edge_index(), part.reverse().to_edge_index())
        assert (back.targets, back.sources) == (part.sources, part.targets)


@pytest.mark.parametrize("kind", ["combinatorial", "symmetric", "random_walk"])
def test_the_laplacian_of_a_batch_is_the_batch_of_laplacians(kind, seed):
    parts = [Graph.from_dense(torch.rand(n, n)) for n in (3, 1, 2)]
    whole = Graph.batch(parts).laplacian(kind, sparse=True)
    assert whole.batch_index.tolist() == [0, 0, 0, 1, 2, 2]
    for part, back in zip(parts, whole.unbatch(), strict=True):
        torch.testing.assert_close(back.to_dense(), part.laplacian(kind))


def test_graphs_that_become_joined_are_one():
    both = Graph.batch([Graph.empty(3), Graph.empty(2)])
    one = both | Graph.complete(5)
    assert repr(one) == "Graph(5 nodes, 25 edges)" and one.unbatch()[0].edges == 25
    for other in (Graph.batch([Graph.complete(3), Graph.complete(2)]), Graph.from_edges([3], [4])):
        apart = both | other
        assert apart.batch_index.tolist() == [0, 0, 0, 1, 1]
        assert [part.nodes for part in apart.unbatch()] == [3, 2]
    odd = Graph.batch([Graph.from_edges([0], [0], sources=a, targets=b) for a, b in ((1, 2), (2, 1))])
    with pytest.raises(ValueError, match=r"edge 2, from node 1 to 1, joins two graphs"):
        odd.with_self_loops().unbatch()


def test_renaming_within_the_graphs_of_a_batch_keeps_it(seed):
    parts = [Graph.from_dense(torch.rand(n, n)) for n in (3, 2)]
    inside = torch.cat([torch.randperm(3), 3 + torch.randperm(2)])
    renamed = Graph.batch(parts).permute(inside)
    for part, back, order in zip(parts, renamed.unbatch(), inside.split([3, 2]), strict=True):
        order = order - order.min()
        torch.testing.assert_close(back.to_dense(), part.to_dense()[order][:, order])
    assert len(Graph.batch(parts).permute([3, 4, 0, 1, 2]).unbatch()) == 1


def test_batch_of_unlike_graphs_is_refused():
    plain = Graph.complete(2)
    with pytest.raises(ValueError, match="graph 1 has weight and graph 0 has not"):
        Graph.batch([plain, plain.with_edges(weight=torch.ones(4))])
    with pytest.raises(ValueError, match=r"weight must agree .* \(2, 4\), \(4,\)"):
        Graph.batch([plain.with_edges(weight=torch.ones(4)), plain.with_edges(weight=torch.ones(2, 4))])
    with pytest.raises(ValueError, match="at least one"):
        Graph.batch([])
    with pytest.raises(ValueError, match="cpu and meta"):
        Graph.batch([plain, plain.to("meta")])


@pytest.mark.parametrize("method", ["with_self_loops", "without_self_loops", "undirected", "to_networkx"])
def test_square_methods_refuse_bipartite(method):
    with pytest.raises(ValueError, match="bipartite"):
        getattr(Graph.from_edges([0], [0], sources=2, targets=1), method)()


def test_loops_are_found_once_and_follow_the_attributes(tangled):
    one, two = tangled.with_self_loops(), tangled.with_edges(weight=2 * tangled.weight).with_self_loops()
    assert one.structure is two.structure
    torch.testing.assert_close(two.weight[: tangled.edges], 2 * one.weight[: tangled.edges])
    with pytest.raises(ValueError, match="bipartite"):
        Graph.from_edges([0], [0], sources=2, targets=1).with_self_loops()


def test_a_graph_first_seen_in_inference_mode_can_be_trained_on(tangled):
    x = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        tangled.with_self_loops().aggregate(x, "std")
        _ = tangled.source
    loops = tangled.with_self_loops()
    (loops.aggregate(x, "std").sum() + x.index_select(0, tangled.source).sum()).backward()
    assert x.grad.isfinite().all()


def test_in_both_and_in_either(seed):
    a, b = (torch.rand(6, 5) < 0.4 for _ in range(2))  # (targets, sources)
    first, second = Graph.from_dense(a), Graph.from_dense(b)
    assert torch.equal((first & second).adjacency().bool(), a & b)
    assert torch.equal((first | second).adjacency().bool(), a | b)


def test_in_both_keeps_what_edges_carry():
    graph = Graph.from_edges([0, 1, 1], [1, 2, 2], weight=[1.0, 2.0, 3.0])
    both = graph & Graph.from_edges([1], [2], nodes=3)
    assert both.weight.tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="weight would be lost"):
        _ = Graph.from_edges([1], [2], nodes=3) & graph
    with pytest.raises(ValueError, match="same nodes"):
        _ = graph | Graph.from_edges([0], [1])
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = graph & 3


def test_local_order_puts_neighbours_next_to_each_other():
    nodes = 40
    line = torch.arange(nodes)
    shuffled = torch.randperm(nodes)
    graph = Graph.from_edges(
        shuffled[line[:-1]], shuffled[line[1:]], nodes=nodes, weight=torch.randn(nodes - 1)
    )
    order = graph.local_order()
    assert order.sort().values.equal(line)
    near = graph.permute(order)
    assert (near.source - near.target).abs().max() == 1  # a line, however numbered, is a line again
    x = torch.randn(nodes, 3)
    torch.testing.assert_close(near.propagate(x[order]), graph.propagate(x)[order])


@pytest.mark.parametrize("graph", [Graph.empty(0), Graph.empty(3), Graph.from_edges([0, 0, 2], [0, 0, 1])])
def test_local_order_of_loners_loops_and_nothing(graph):
    assert graph.local_order().sort().values.equal(torch.arange(graph.nodes))


@pytest.mark.parametrize("times", [1, 128, 256])
def test_local_order_of_edges_that_come_many_times(times):
    ends = torch.tensor([0, 3, 1, 4]), torch.tensor([3, 1, 4, 2])  # 0 3 1 4 2 in a row
    graph = Graph.from_edges(*(end.repeat(times) for end in ends))
    near = graph.permute(graph.local_order())
    assert (near.source - near.target).abs().max() == 1


def test_local_order_takes_one_kind_of_nodes():
    with pytest.raises(ValueError, match="bipartite"):
        Graph.from_edges([0], [1], sources=2, targets=3).local_order()
