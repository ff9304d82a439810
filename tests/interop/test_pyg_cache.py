"""Graphs are kept for the edge_index they were made of, and for no other."""

from __future__ import annotations

import copy
import gc
import io
import threading
import weakref

import pytest
import torch

from heedful import Graph
from heedful.interop.pyg import GATConv, GCNConv, SAGEConv
from heedful.interop.pyg import find as find_module
from heedful.interop.pyg.cache import Cache
from heedful.interop.pyg.find import GRAPHS


@pytest.fixture(autouse=True)
def _fresh(seed):
    GRAPHS.clear()
    yield
    GRAPHS.clear()


@pytest.fixture
def built(monkeypatch):
    """How many graphs were built so far."""
    count = []
    group = find_module.group

    def counting(*arguments):
        count.append(arguments)
        return group(*arguments)

    monkeypatch.setattr(find_module, "group", counting)
    return count


def edges(nodes=6, number=15):
    return torch.randint(nodes, (2, number))


def uncached(layer, x, edge_index):
    """The answer to a copy of the tensor, which no cache has seen."""
    return layer(x, edge_index.clone())


LAYER = [
    pytest.param(lambda: GATConv(4, 2), id="GAT"),
    pytest.param(lambda: GCNConv(4, 2), id="GCN"),
    pytest.param(lambda: SAGEConv(4, 2), id="SAGE"),
]


def test_built_once_for_all_layers(built):
    x, index = torch.randn(6, 4), edges()
    layers = [GATConv(4, 4), GATConv(4, 4, heads=2, concat=False), GCNConv(4, 4)]
    for _ in range(3):
        for layer in layers:
            layer(x, index).sum().backward()
    assert len(built) == 1  # all three replace the loops
    SAGEConv(4, 4)(x, index)
    assert len(built) == 2  # loops as they are


@pytest.mark.parametrize("make", LAYER)
@pytest.mark.parametrize(
    "edit",
    [
        lambda index: index[0].__setitem__(0, (index[0, 0] + 1) % 6),
        lambda index: index.copy_(index.flip(0)),
        lambda index: index.add_(1).remainder_(6),
        lambda index: torch.add(index.clone(), 1, out=index).remainder_(6),
        lambda index: index.set_(edges()),
        lambda index: setattr(index, "data", edges()),
        lambda index: setattr(index, "data", edges(number=16)),
        lambda index: index.t_().t_().swapaxes_(0, 1).resize_(2, 14),
    ],
)
def test_edits_are_noticed(make, edit):
    layer, x, index = make(), torch.randn(6, 4), edges()
    layer(x, index)
    edit(index)
    assert torch.equal(layer(x, index), uncached(layer, x, index))


@pytest.mark.parametrize("make", LAYER)
def test_edits_through_the_base_of_a_view(make):
    layer, x, base = make(), torch.randn(6, 4), edges(number=30)
    view = base[:, 5:20]
    layer(x, view)
    base.add_(1).remainder_(6)
    assert torch.equal(layer(x, view), uncached(layer, x, view))


def test_edits_of_weights_are_noticed():
    layer, x, index, weight = GCNConv(4, 2), torch.randn(6, 4), edges(), torch.rand(15)
    layer(x, index, weight)
    weight.mul_(torch.rand(15))
    assert torch.equal(layer(x, index, weight), layer(x, index.clone(), weight.clone()))
    other = torch.rand(15)
    assert torch.equal(layer(x, index, other), layer(x, index.clone(), other.clone()))


def test_a_new_tensor_in_the_place_of_a_dead_one():
    layer, x = GATConv(4, 2), torch.randn(6, 4)
    seen: set[int] = set()
    reused = 0
    for _ in range(50):
        index = edges()
        reused += id(index) in seen
        seen.add(id(index))
        assert torch.equal(layer(x, index), uncached(layer, x, index))
        del index
    assert reused, "no id was reused, so this tested nothing"


def test_an_entry_whose_owner_died_is_not_found():
    """Even if the callback never came."""
    cache, owner = Cache(4), torch.zeros(2)
    cache.get(owner, "key", lambda: "first")
    (place, entry), *_ = cache._entries.items()
    other = torch.zeros(3)
    cache._entries[(id(other), "key")] = entry
    assert cache.get(other, "key", lambda: "second") == "second"
    assert place in cache._entries


def test_nothing_is_kept_alive():
    for make in (lambda: GATConv(4, 2, edge_dim=3), lambda: GCNConv(4, 2), lambda: SAGEConv(4, 2)):
        layer, x, index = make(), torch.randn(6, 4), edges()
        extra = [torch.randn(15, 3)] if isinstance(layer, GATConv) else []
        out = layer(x, index, *extra)
        out.sum().backward()
        alive = weakref.ref(index)
        assert len(GRAPHS) == 1
        (entry,) = GRAPHS._entries.values()
        graph = weakref.ref(entry.value.graph)
        del index, entry, out
        gc.collect()
        assert alive() is None and graph() is None and len(GRAPHS) == 0


def test_a_graph_is_not_kept_alive():
    for layer in (GATConv(4, 2), SAGEConv(4, 2), GCNConv(4, 2, add_self_loops=False)):
        graph = Graph.from_edge_index(edges(), nodes=6)
        for _ in range(2):
            layer(torch.randn(6, 4), graph)
        assert len(GRAPHS) == 1
        alive = weakref.ref(graph.structure)
        del graph
        gc.collect()
        assert alive() is None and len(GRAPHS) == 0


def test_bounded():
    layer, x = SAGEConv(4, 2), torch.randn(6, 4)
    alive = [edges() for _ in range(GRAPHS.limit + 20)]
    for index in alive:
        layer(x, index)
    assert len(GRAPHS) == GRAPHS.limit
    for index in (alive[0], alive[-1]):
        assert torch.equal(layer(x, index), uncached(layer, x, index))


@pytest.mark.parametrize("make", LAYER)
def test_many_graphs_in_turn(make, built):
    layer = make()
    batches = [(torch.randn(n, 4), edges(n, 3 * n)) for n in (3, 8, 5, 8)]
    expected = [uncached(layer, x, index) for x, index in batches]
    del built[:]
    for _ in range(3):
        for (x, index), out in zip(batches, expected, strict=True):
            assert torch.equal(layer(x, index), out)
    assert len(built) == len(batches)


def test_numbers_of_nodes_are_part_of_the_key():
    layer, index = SAGEConv(4, 2), edges(nodes=3)
    for nodes in (3, 5, 4, 3):
        x = torch.randn(nodes, 4)
        assert torch.equal(layer(x, index), uncached(layer, x, index))


def test_inference_mode_first():
    """What is kept must serve training too, and inference tensors, which count no versions, are not kept."""
    layer, x, index = GCNConv(4, 2), torch.randn(6, 4), edges()
    with torch.inference_mode():
        layer(x, index)
        strange = edges()
        layer(x, strange)
        strange.copy_(edges())
        assert torch.equal(layer(x, strange), layer(x, strange.clone()))
    layer(x, index).sum().backward()
    assert len(GRAPHS) == 1


def test_threads():
    layer = GATConv(4, 2, heads=2)
    shared = [(torch.randn(n, 4), edges(n, 4 * n)) for n in (5, 9, 14)]
    expected = [uncached(layer, x, index) for x, index in shared]
    GRAPHS.clear()
    wrong: list[Exception | str] = []

    def work(first: int):
        try:
            for turn in range(40):
                which = (first + turn) % 3
                x, index = shared[which]
                if not torch.equal(layer(x, index), expected[which]):
                    wrong.append("another graph's answer")
                own = edges(5, 7)
                if not torch.equal(layer(shared[0][0], own), uncached(layer, shared[0][0], own)):
                    wrong.append("own graph")
        except Exception as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_and_files():
    layer, x, index = GCNConv(4, 2, cached=True), torch.randn(6, 4), edges()
    out = layer(x, index)
    assert torch.equal(copy.deepcopy(layer)(x, index), out)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x, index), out)
