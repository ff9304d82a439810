"""Patterns by brute force: what they list, allow, mask and declare is what their definition says."""

from __future__ import annotations

import gc
import weakref
from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful import Causal, Everyone, Global, Graph, Mask, Segments, Window
from heedful.attention.neighbors import Tile, as_neighbors

from . import cases, naive
from .cases import NEIGHBORS, Shape
from .test_properties import PLAIN, PROFILE, TREES, grow

SHARED = [name for name in PLAIN if "head" not in name and "entry" not in name and name != "mask & window"]
LENGTHS = [(1, 1), (1, 9), (9, 1), (5, 5), (4, 11), (11, 4), (23, 23)]
SIMPLE = {"everyone", "causal", "window", "causal & window", "causal | window", "global", "segments"}


def brute(pattern, queries: int, keys: int) -> torch.Tensor:
    """(queries, keys): which pairs the definition allows."""
    rows = [
        [naive.heeds(pattern, (0, 0), row, j, queries, keys) for j in range(keys)] for row in range(queries)
    ]
    return torch.tensor(rows).view(queries, keys)


def listed(pairs, queries: int, keys: int) -> torch.Tensor:
    i, j = pairs
    allowed = torch.zeros(queries, keys, dtype=torch.bool)
    allowed[i - (keys - queries), j] = True
    return allowed


def check(pattern, queries: int, keys: int, exactly: bool = False) -> None:
    wanted = brute(pattern, queries, keys)
    facts, tile = pattern.facts(queries, keys), Tile.whole(queries, keys, torch.device("cpu"))
    assert torch.equal(pattern.allows(tile.i, tile.j, queries, keys).expand(queries, keys), wanted)
    i, j = pattern.pairs(queries, keys, "cpu")
    assert torch.equal(listed((i, j), queries, keys), wanted)
    if not facts.graph:
        assert len(i) == wanted.sum(), "a pair is listed twice"
    mask = pattern.mask(tile)
    assert wanted.all() if mask is None else torch.equal(mask.expand(queries, keys), wanted)
    assert torch.equal(pattern.graph(queries, keys, "cpu").adjacency() > 0, wanted)
    offset = tile.i - tile.j
    heard = offset[wanted]
    assert facts.pairs >= wanted.sum()
    assert not facts.complete or bool(wanted.all())
    assert ((heard >= facts.reach[0]) & (heard <= facts.reach[1])).all()
    if facts.interval is not None:
        low, high = facts.interval
        assert torch.equal((offset >= low) & (offset <= high), wanted)
        assert facts.pairs == wanted.sum()
        assert facts.complete == bool(wanted.all())
    if exactly:
        assert facts.pairs == wanted.sum()
    assert (wanted.sum(1) <= facts.block).all()
    for rows in {(0, queries), (0, 1), (queries // 2, queries // 2 + 1), (queries // 3, queries)}:
        start, stop = pattern.key_range(rows, queries, keys)
        assert 0 <= start <= stop <= keys
        outside = wanted[slice(*rows)].clone()
        outside[:, start:stop] = False
        assert not outside.any(), f"rows {rows} hear beyond keys {start} to {stop}"
        part = Tile(queries, keys, rows, (start, stop), torch.device("cpu"))
        mask = pattern.mask(part)
        inside = wanted[slice(*rows), start:stop]
        assert inside.all() if mask is None else torch.equal(mask.expand(inside.shape), inside)


@pytest.mark.parametrize("queries, keys", LENGTHS)
@pytest.mark.parametrize("name", SHARED)
def test_a_pattern_is_what_its_definition_says(name, queries, keys, seed):
    if cases.needs_past(name) and queries > keys:
        pytest.skip("the first queries would stand in no segment")
    pattern = as_neighbors(NEIGHBORS[name](Shape(queries=queries, keys=keys, seed=seed)).make())
    check(pattern, queries, keys, exactly=name in SIMPLE)


@settings(PROFILE, max_examples=150)
@given(
    TREES.filter(lambda tree: not any(n in str(tree) for n in ("head", "entry", "mask & window"))), st.data()
)
def test_a_nested_pattern_is_what_its_parts_say(tree, data):
    keys = data.draw(st.integers(1, 14))
    queries = data.draw(st.integers(1, keys if cases.needs_past(str(tree)) else 14))
    check(grow(tree, Shape(queries=queries, keys=keys, seed=data.draw(st.integers(0, 999)))), queries, keys)


@pytest.mark.parametrize("name", ["mask per head", "mask per entry", "mask & window"])
def test_a_mask_with_batch_dimensions_keeps_them(name):
    shape = Shape(lead=(3,), heads=2, queries=5, keys=6)
    pattern = NEIGHBORS[name](shape).make()
    mask = pattern.mask(Tile.whole(5, 6, torch.device("cpu"))).expand(3, 2, 5, 6)
    for place in [(0, 0), (2, 1), (1, 0)]:
        wanted = [[naive.heeds(pattern, place, row, j, 5, 6) for j in range(6)] for row in range(5)]
        assert mask[place].tolist() == wanted
    assert not pattern.facts(5, 6).listed


def test_intervals_combine_into_intervals():
    assert (Causal() & Window(3)).facts(9, 9).interval == (0, 3)
    assert (Causal() | Window(3)).facts(9, 9).interval == (-3, inf)
    assert (Window(2) & Window(5) & Everyone()).facts(9, 9).interval == (-2, 2)
    assert (Window(2) | Everyone()).facts(9, 9).complete
    assert (Window(2) | Segments([4, 5])).facts(9, 9).interval is None


def test_a_window_as_wide_as_the_sequence_is_everyone():
    assert Window(8).facts(9, 9).complete
    assert not Window(7).facts(9, 9).complete


def test_the_ends_of_queries_and_keys_align():
    last = Causal().mask(Tile.whole(2, 5, torch.device("cpu")))
    assert last.tolist() == [[True] * 4 + [False], [True] * 5]
    first = Causal().mask(Tile.whole(3, 1, torch.device("cpu")))
    assert first.tolist() == [[False], [False], [True]]


def test_the_edge_list_of_a_pattern_is_made_once():
    assert (Causal() & Window(3)).graph(9, 9, "cpu") is (Causal() & Window(3)).graph(9, 9, "cpu")
    assert Window(3).graph(9, 9, "cpu") is not Window(4).graph(9, 9, "cpu")
    assert Window(3).graph(9, 9, "cpu") is not Window(3).graph(8, 9, "cpu")


def test_edge_lists_with_attributes_are_not_kept():
    graph = Graph.complete(4).with_edges(bias=torch.zeros(16, requires_grad=True))
    pattern = graph & Causal()
    assert pattern.graph(4, 4, "cpu") is not pattern.graph(4, 4, "cpu")
    assert pattern.graph(4, 4, "cpu").bias.requires_grad


def test_only_so_many_edge_lists_are_kept():
    from heedful.attention.neighbors import base

    for width in range(1, 2 * base._GRAPHS_KEPT):
        Window(width).graph(50, 50, "cpu")
    assert len(base._GRAPHS) <= base._GRAPHS_KEPT


def test_remembering_a_plan_keeps_no_mask_alive():
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()
    gone = weakref.ref(allowed)
    x = torch.randn(1, 6, 4)
    heedful.attend(x, x, x, neighbors=Mask(allowed), strategy="fused")
    del allowed
    gc.collect()
    assert gone() is None


def test_two_masks_of_one_shape_are_told_apart():
    x = torch.randn(1, 6, 4)
    for _ in range(3):
        allowed = torch.rand(6, 6) < 0.5
        out = heedful.attend(x, x, torch.eye(6)[None], neighbors=Mask(allowed), strategy="sparse")
        assert torch.equal(out[0] > 0, allowed)


def test_a_mask_that_changes_is_seen_by_every_strategy():
    x, allowed = torch.randn(1, 7, 4), torch.rand(7, 7) < 0.5
    for pattern in (Mask(allowed), Mask(allowed) & Window(4), Mask(allowed) | Window(1)):
        able = heedful.explain(x, x, x, neighbors=pattern)
        for name in {entry.name for entry in able.candidates} - able.rejected.keys():
            for _ in range(2):
                out = heedful.attend(x, x, torch.eye(7)[None], neighbors=pattern, strategy=name)
                assert torch.equal(out[0] > 0, pattern.mask(Tile.whole(7, 7, x.device))), name
                allowed.logical_not_()


def test_patterns_are_equal_by_value_and_graphs_by_identity():
    assert Window(3) == Window(3) != Window(4)
    assert hash(Causal() & Window(3)) == hash(Causal() & Window(3))
    assert Segments([1, 2]) != Segments([2, 1])
    first, second = Graph.complete(2), Graph.complete(2)
    assert as_neighbors(first) == as_neighbors(first) != as_neighbors(second)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Window(0), "width"),
        (lambda: Window(2.5), "2.5"),
        (lambda: Window(True), "True"),
        (lambda: Segments([]), "one or more"),
        (lambda: Segments([3, -1]), "negative"),
        (lambda: Global([]), "one or more"),
        (lambda: Global([-1]), "negative"),
    ],
)
def test_a_pattern_that_makes_no_sense_says_so(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("given", [torch.ones(3, 3), torch.ones(3, dtype=torch.bool), [[True]]])
def test_a_mask_is_a_boolean_matrix(given):
    with pytest.raises(TypeError, match="boolean tensor"):
        Mask(given)


X = torch.randn(1, 5, 4)


@pytest.mark.parametrize(
    "neighbors, says",
    [
        (Segments([2, 2]), "add up to 4, but there are 5"),
        (Global([7]), "position 7 is out of range for 5 keys"),
        (Mask(torch.ones(4, 5, dtype=torch.bool)), "4 queries, but the call has 5"),
        (Mask(torch.ones(5, 3, dtype=torch.bool)), "3 keys, but the call has 5"),
        (Graph.complete(4), "4 listeners and 4 speakers"),
        (Causal() & Segments([2, 2]), "add up to 4"),
        (Window(1) | Global([9]), "position 9"),
    ],
)
def test_a_pattern_that_does_not_fit_the_call_says_so(neighbors, says):
    for _ in range(2):  # the second time must not slip through what the first has left behind
        with pytest.raises(ValueError, match=says):
            heedful.attend(X, X, X, neighbors=neighbors)


def test_segments_take_no_more_queries_than_keys():
    with pytest.raises(ValueError, match="stand in no segment"):
        heedful.attend(torch.randn(1, 6, 4), X, X, neighbors=Segments([5]))


def test_or_with_a_graph_that_carries_something_is_refused():
    graph = Graph.complete(5).with_edges(weight=torch.ones(25))
    with pytest.raises(TypeError, match="would have no weight"):
        graph | Causal()
    with pytest.raises(ValueError, match="both graphs carry"):
        heedful.attend(X, X, X, neighbors=(graph & Causal()) & graph)


@pytest.mark.parametrize("thing", [torch.ones(5, 5, dtype=torch.bool), "causal", None])
def test_neighbors_must_be_neighbors(thing):
    with pytest.raises(TypeError, match="must be a Neighbors or a Graph"):
        heedful.attend(X, X, X, neighbors=thing)
    with pytest.raises(TypeError):
        Causal() & thing


def test_a_pattern_is_no_graph():
    graph = heedful.Graph.from_edges([0], [1], nodes=2)
    assert heedful.Everyone() != graph
    assert graph != heedful.Everyone()
