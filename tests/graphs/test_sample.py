"""Neighbour sampling: what is drawn exists, is relabelled right, is fair, and with −1 is everything."""

import numpy
import pytest
import torch

from heedful.graphs import Graph


def test_samples_are_true_edges(seed):
    graph = Graph.from_edge_index(torch.randint(0, 60, (2, 600)), nodes=60, weight=torch.rand(600))
    seeds = torch.randperm(60)[:5]
    drawn = graph.sample(seeds, [3, 2])
    assert torch.equal(drawn.nodes[:5], seeds) and len(drawn.nodes.unique()) == len(drawn.nodes)
    assert torch.equal(drawn.nodes[drawn.graph.source], graph.source[drawn.edges])
    assert torch.equal(drawn.nodes[drawn.graph.target], graph.target[drawn.edges])
    assert torch.equal(drawn.graph.weight, graph.weight[drawn.edges])
    assert len(drawn.edges.unique()) == len(drawn.edges)  # without replacement
    degree = graph.degree()[drawn.nodes]
    hop = torch.full((drawn.graph.nodes,), 0)
    hop[: drawn.layers[0].targets] = 2
    hop[:5] = 3
    assert torch.equal(drawn.graph.degree(), torch.minimum(degree, hop))


def test_layers_nest(seed):
    graph = Graph.from_edge_index(torch.randint(0, 60, (2, 300)), nodes=60)
    drawn = graph.sample([7, 3, 9], [2, 2, 2])
    assert len(drawn.layers) == 3
    assert drawn.layers[0].sources == len(drawn.nodes) and drawn.layers[-1].targets == 3
    for first, second in zip(drawn.layers, drawn.layers[1:], strict=False):
        assert second.sources == first.targets
    assert len(graph.sample([7], 2).layers) == 1


def test_all_neighbours_give_the_exact_answer(seed):
    """Three layers of means on the sample equal three on the whole graph, at the seeds."""
    graph = Graph.from_edge_index(torch.randint(0, 200, (2, 500)), nodes=200)
    x = torch.randn(200, 4, dtype=torch.float64)
    full = x
    for _ in range(3):
        full = graph.aggregate(full, "mean")
    seeds = torch.randperm(200)[:6]
    drawn = graph.sample(seeds, [-1, -1, -1])
    part = x[drawn.nodes]
    for layer in drawn.layers:
        part = layer.aggregate(part, "mean")
    torch.testing.assert_close(part, full[seeds])


@pytest.mark.parametrize("replace", [False, True])
def test_the_generator_decides(seed, replace):
    graph = Graph.complete(40)

    def draw(number):
        generator = torch.Generator().manual_seed(number)
        return graph.sample([1, 2], [5, 5], generator=generator, replace=replace).edges

    assert torch.equal(draw(seed), draw(seed))
    assert not torch.equal(draw(seed), draw(seed + 1))


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_is_as_likely(seed, replace):
    graph = Graph.from_edges(torch.arange(10), torch.zeros(10, dtype=int), nodes=10)
    rounds = 600
    many = Graph.batch([graph] * rounds)
    drawn = many.sample(torch.arange(rounds) * 10, 3, replace=replace)
    counts = torch.bincount(drawn.edges % 10, minlength=10).double()
    assert counts.sum() == 3 * rounds
    expected = 0.3 * rounds
    assert ((counts - expected).abs() < 6 * expected**0.5).all()  # six sigma: one failure in 10^8 runs


def test_with_replacement_draws_exactly_that_many():
    graph = Graph.from_edges([1, 2], [0, 0], nodes=4)
    drawn = graph.sample([0, 3], 5, replace=True)
    assert drawn.graph.degree()[:2].tolist() == [5, 0]


@pytest.mark.parametrize("whole", [numpy.int64, numpy.uint8, torch.tensor])
def test_whole_numbers_of_any_type(whole, seed):
    graph = Graph.complete(6, self_loops=False)
    assert graph.sample([0], whole(2)).graph.edges == 2
    assert graph.sample([0], [whole(2), whole(1)]).graph.edges == 4
    assert Graph.empty(whole(3)).nodes == 3
    with pytest.raises(TypeError, match="fanout must be a whole number"):
        graph.sample([0], True)


def test_edges_of_the_domain():
    graph = Graph.complete(4)
    assert graph.sample([], 3).graph.nodes == 0
    assert graph.sample([2], 0).nodes.tolist() == [2]
    assert Graph.empty(3).sample([1], [2, 2]).graph.edges == 0
    with pytest.raises(ValueError, match="lists node 1 more than once"):
        graph.sample([1, 1], 2)
    with pytest.raises(ValueError, match=r"seeds\[0\] is 4, but with 4 nodes"):
        graph.sample([4], 2)
    with pytest.raises(ValueError, match="fanout is -2"):
        graph.sample([0], [1, -2])
    with pytest.raises(TypeError, match="fanout must be a whole number"):
        graph.sample([0], 1.5)
    with pytest.raises(ValueError, match="fanout is empty"):
        graph.sample([0], [])
    with pytest.raises(ValueError, match="bipartite"):
        Graph.from_edges([0], [0], sources=2, targets=1).sample([0], 1)
