"""A wrong call says which argument, what it got and what it takes; and leaves nothing behind."""

from __future__ import annotations

import math

import pytest
import torch

import heedful
from heedful import (
    Additive,
    Alibi,
    Causal,
    FeatureMap,
    Global,
    Graph,
    Mask,
    Polynomial,
    RandomFeatures,
    Relative,
    Rotary,
    ScoreFunction,
    Segments,
    Softmax,
    T5Buckets,
    Window,
    attend,
    explain,
)
from heedful.attention.strategies import STRATEGIES, LowRank, Projected

Q = torch.randn(2, 4, 6, 8)  # batch, heads, length, dim
K = torch.randn(2, 4, 6, 8)
V = torch.randn(2, 4, 6, 5)

# name: (the call, the exception, words its message must hold)
TENSORS = {
    "dims that differ": (
        lambda: attend(Q, K[..., :6], V),
        ValueError,
        ["key has 6", "query has 8", "must match"],
    ),
    "a table without numbers": (
        lambda: attend(Q, K, V, position=Relative(torch.zeros(13, device="meta"))),
        ValueError,
        ["Relative(13)", "on meta", "query on cpu"],
    ),
    "a graph without numbers": (
        lambda: attend(Q, K, V, neighbors=Window(2) & Graph.from_edges([0], [1], nodes=6).to("meta")),
        ValueError,
        ["Graph(6 nodes, 1 edges)", "on meta", "query on cpu"],
    ),
    "scales without numbers": (
        lambda: attend(Q, K, V, similarity=Softmax(scale=torch.ones(4, device="meta"))),
        ValueError,
        ["Softmax", "scale", "on meta", "query on cpu"],
    ),
    "scales that are counts": (
        lambda: Softmax(scale=torch.ones(4, dtype=torch.int64)),
        TypeError,
        ["scale", "floating point", "int64"],
    ),
    "weights that are counts": (
        lambda: Additive(weight=torch.ones(4, dtype=torch.int64)),
        TypeError,
        ["weight", "floating point", "int64"],
    ),
    "exact as a word": (lambda: attend(Q, K, V, exact="no"), TypeError, ["exact='no'", "True or False"]),
    "an unheard-of device": (lambda: explain(Q, K, V, device="tpu"), ValueError, ["device='tpu'", "'cuda'"]),
    "lengths that differ": (lambda: attend(Q, K, V[..., :5, :]), ValueError, ["key has length 6", "value 5"]),
    "heads that do not divide": (
        lambda: attend(Q, K[:, :3], V[:, :3]),
        ValueError,
        ["query has 4 heads", "key 3", "multiple"],
    ),
    "more key heads than heads": (lambda: attend(Q[:, :2], K, V), ValueError, ["query has 2 heads", "key 4"]),
    "key and value heads": (lambda: attend(Q, K[:, :2], V), ValueError, ["key has 2 heads", "value 4"]),
    "leading dimensions of key": (
        lambda: attend(Q, torch.randn(3, 4, 6, 8), torch.randn(3, 4, 6, 5)),
        ValueError,
        ["key", "(3,)", "query (2,)", "match or be 1"],
    ),
    "leading dimensions of key and value": (
        lambda: attend(Q[:1], K, torch.randn(3, 4, 6, 5)),
        ValueError,
        ["value", "(3,)", "match or be 1"],
    ),
    "another device": (lambda: attend(Q, K.to("meta"), V), ValueError, ["key is on meta", "query on cpu"]),
    "whole numbers": (lambda: attend(Q.long(), K, V), TypeError, ["query is torch.int64", "floating point"]),
    "complex numbers": (
        lambda: attend(Q, K, V + 0j),
        TypeError,
        ["value is torch.complex64", "floating point"],
    ),
    "no tensor": (lambda: attend(Q, K.tolist(), V), TypeError, ["key must be a tensor", "list"]),
    "None": (lambda: attend(Q, K, None), TypeError, ["value must be a tensor", "NoneType"]),
    "dtypes that differ": (
        lambda: attend(Q, K, V.double()),
        TypeError,
        ["value is torch.float64", "torch.float32"],
    ),
    "one dimension": (lambda: attend(Q[0, 0, 0], K, V), ValueError, ["query has shape (8,)", "length, dim"]),
    "heads in some only": (
        lambda: attend(Q[0, 0], K[0], V[0]),
        ValueError,
        ["key has shape (4, 6, 8)", "heads"],
    ),
    "width 0": (
        lambda: attend(Q[..., :0], K[..., :0], V),
        ValueError,
        ["query", "last dimension must not be 0"],
    ),
    "value width 0": (
        lambda: attend(Q, K, V[..., :0]),
        ValueError,
        ["value", "last dimension must not be 0"],
    ),
    "heads 0": (
        lambda: attend(Q[:, :0], K[:, :0], V[:, :0]),
        ValueError,
        ["query has 0 heads", "at least one"],
    ),
    "key heads 0": (lambda: attend(Q, K[:, :0], V[:, :0]), ValueError, ["key 0", "at least one"]),
    "step without heads": (
        lambda: heedful.step(Q[0, 0], K[0, 0], V[0, 0]),
        ValueError,
        ["step()", "heads, tokens"],
    ),
    "step of uneven lengths": (
        lambda: heedful.step(Q[..., :1, :], K, V),
        ValueError,
        ["step()", "1 queries for 6 keys"],
    ),
    "step that looks ahead": (
        lambda: heedful.step(Q, K, V, neighbors=Window(2)),
        ValueError,
        ["step()", "Window(2)", "Causal()"],
    ),
    "step with another's state": (
        lambda: heedful.step(Q, K, V, heedful.step(Q, K, V)[1], similarity=Polynomial(2)),
        (TypeError, ValueError),
        ["step()", "State"],
    ),
}

GRAPHS = {
    "edge out of range": (
        lambda: Graph.from_edges([0, 9], [1, 2], nodes=5),
        ValueError,
        ["source[1] is 9", "0 to 4"],
    ),
    "negative edge": (
        lambda: Graph.from_edges([0, 1], [1, -2], nodes=5),
        ValueError,
        ["target[1] is -2", "0 to 4"],
    ),
    "uneven ends": (
        lambda: Graph.from_edges([0, 1], [1], nodes=5),
        ValueError,
        ["source", "target", "2", "1"],
    ),
    "edges that are not whole": (
        lambda: Graph.from_edges([0.5], [1], nodes=5),
        TypeError,
        ["source", "whole"],
    ),
    "graph of another size": (
        lambda: attend(Q, K, V, neighbors=Graph.complete(7)),
        ValueError,
        ["7 listeners", "query has 6"],
    ),
    "graph for other keys": (
        lambda: attend(Q, K, V, neighbors=Graph.from_edges([0], [0], sources=9, targets=6)),
        ValueError,
        ["9 speakers", "key 6"],
    ),
    "attribute of another size": (
        lambda: Graph.complete(3).with_edges(bias=torch.zeros(5)),
        ValueError,
        ["bias has shape (5,)", "9 edges"],
    ),
    "attributes in an or": (
        lambda: Graph.complete(6).with_edges(bias=torch.zeros(36)) | Window(1),
        TypeError,
        ["bias", "use &"],
    ),
}


def carrying(**edges):
    return lambda: attend(Q, K, V, neighbors=Graph.complete(6).with_edges(**edges))


GRAPHS |= {
    "edge weight for other heads": (
        carrying(weight=torch.ones(3, 36)),
        ValueError,
        ["edge weight", "(3, 36)", "(2, 4)"],
    ),
    "edge bias for another batch": (
        carrying(bias=torch.ones(3, 1, 36)),
        ValueError,
        ["edge bias", "(3, 1, 36)"],
    ),
    "edge key of another width": (
        carrying(key=torch.ones(36, 7)),
        ValueError,
        ["edge key", "7 wide", "key 8"],
    ),
    "edge value of another width": (
        carrying(value=torch.ones(36, 1)),
        ValueError,
        ["edge value", "1 wide", "value 5"],
    ),
}

POSITIONS = {
    "table too short": (
        lambda: attend(Q, K, V, position=Relative(torch.zeros(5))),
        ValueError,
        ["5 entries", "distances up to 5", "11 entries", "clamp=True", "Window(2)"],
    ),
    "even table": (lambda: Relative(torch.zeros(6)), ValueError, ["(6,)", "odd"]),
    "table of three dimensions": (
        lambda: Relative(torch.zeros(1, 2, 11)),
        ValueError,
        ["(1, 2, 11)", "2L+1"],
    ),
    "rows for other heads": (
        lambda: attend(Q, K, V, position=Relative(torch.zeros(3, 11))),
        ValueError,
        ["Relative(table)", "3 rows", "4 heads"],
    ),
    "NaN in the table": (
        lambda: Relative(torch.tensor([0.0, math.nan, 0.0])),
        ValueError,
        ["nan at [1]", "finite"],
    ),
    "+inf in the table": (
        lambda: Relative(torch.tensor([0.0, 0.0, math.inf])),
        ValueError,
        ["inf at [2]", "silence"],
    ),
    "table of whole numbers": (
        lambda: Relative(torch.zeros(3).long()),
        TypeError,
        ["floating-point", "int64"],
    ),
    "table that is a list": (lambda: Relative([0.0, 0.0, 0.0]), TypeError, ["floating-point tensor", "list"]),
    "slopes for other heads": (
        lambda: attend(Q, K, V, position=Alibi(torch.ones(3))),
        ValueError,
        ["Alibi(slopes)", "3 rows", "4 heads"],
    ),
    "slopes of two dimensions": (lambda: Alibi(torch.ones(2, 2)), ValueError, ["Alibi(slopes)", "(2, 2)"]),
    "slopes in a list": (lambda: Alibi([0.5, 0.25]), TypeError, ["Alibi(slopes)", "list", "a tensor"]),
    "infinite slope": (lambda: Alibi(math.inf), ValueError, ["Alibi(slopes=inf)", "finite"]),
    "NaN slope": (lambda: Alibi(torch.tensor([math.nan])), ValueError, ["Alibi(slopes)", "nan"]),
    "too few buckets": (
        lambda: T5Buckets(torch.zeros(2)),
        ValueError,
        ["T5Buckets", "2 buckets", "max_distance=128"],
    ),
    "buckets beyond the distance": (
        lambda: T5Buckets(torch.zeros(64), max_distance=8),
        ValueError,
        ["64 buckets", "max_distance=8", "above 16"],
    ),
    "buckets for other heads": (
        lambda: attend(Q, K, V, position=T5Buckets(torch.zeros(3, 32))),
        ValueError,
        ["T5Buckets(table)", "3 rows", "4 heads"],
    ),
    "odd width for Rotary": (
        lambda: attend(Q[..., :7], K[..., :7], V, position=Rotary()),
        ValueError,
        ["Rotary", "pairs", "7", "even"],
    ),
    "odd dims for Rotary": (lambda: Rotary(dims=3), ValueError, ["Rotary(dims=3)", "even"]),
    "more dims than there are": (
        lambda: attend(Q, K, V, position=Rotary(dims=10)),
        ValueError,
        ["Rotary", "have 8"],
    ),
    "base 0": (lambda: Rotary(base=0), ValueError, ["Rotary(base=0)", "positive"]),
    "a tensor as position": (
        lambda: attend(Q, K, V, position=torch.zeros(11)),
        TypeError,
        ["position", "Relative(table)"],
    ),
}

NEIGHBORS = {
    "window 0": (lambda: Window(0), ValueError, ["width=0", "1 or more"]),
    "window −1": (lambda: Window(-1), ValueError, ["width=-1", "1 or more"]),
    "window 2.5": (lambda: Window(2.5), ValueError, ["width=2.5", "whole number"]),
    "window True": (lambda: Window(True), ValueError, ["width=True", "whole number"]),
    "segments that do not add up": (
        lambda: attend(Q, K, V, neighbors=Segments([2, 3])),
        ValueError,
        ["Segments([2, 3])", "add up to 5", "6 keys"],
    ),
    "no segments": (lambda: Segments([]), ValueError, ["Segments", "one or more"]),
    "negative segment": (lambda: Segments([3, -1]), ValueError, ["Segments", "none negative"]),
    "queries before the segments": (
        lambda: attend(Q, K[..., :4, :], V[..., :4, :], neighbors=Segments([2, 2])),
        ValueError,
        ["6 queries for 4 keys"],
    ),
    "global out of range": (
        lambda: attend(Q, K, V, neighbors=Window(1) | Global([0, 6])),
        ValueError,
        ["position 6", "6 keys", "0 to 5"],
    ),
    "negative global": (lambda: Global([-1]), ValueError, ["Global", "none negative"]),
    "mask of another shape": (
        lambda: attend(Q, K, V, neighbors=Mask(torch.ones(6, 7, dtype=torch.bool))),
        ValueError,
        ["Mask of shape (6, 7)", "7 keys", "6"],
    ),
    "mask for other heads": (
        lambda: attend(Q, K, V, neighbors=Mask(torch.ones(3, 6, 6, dtype=torch.bool))),
        ValueError,
        ["Mask of shape (3, 6, 6)", "3", "4"],
    ),
    "mask for another batch": (
        lambda: attend(Q, K, V, neighbors=Mask(torch.ones(3, 1, 6, 6, dtype=torch.bool))),
        ValueError,
        ["Mask of shape (3, 1, 6, 6)"],
    ),
    "mask of numbers": (lambda: Mask(torch.ones(6, 6)), TypeError, ["boolean", "float32", "(6, 6)"]),
    "mask of one dimension": (
        lambda: Mask(torch.ones(6, dtype=torch.bool)),
        TypeError,
        ["(..., queries, keys)"],
    ),
    "mask on another device": (
        lambda: attend(Q, K, V, neighbors=Mask(torch.ones(6, 6, dtype=torch.bool, device="meta"))),
        ValueError,
        ["Mask is on meta", "query on cpu"],
    ),
    "a bare boolean tensor": (
        lambda: attend(Q, K, V, neighbors=torch.ones(6, 6, dtype=torch.bool)),
        TypeError,
        ["neighbors", "Tensor", "Mask(tensor)"],
    ),
    "a name": (lambda: attend(Q, K, V, neighbors="causal"), TypeError, ["neighbors", "str"]),
    "a class": (lambda: attend(Q, K, V, neighbors=Causal), TypeError, ["neighbors"]),
}

SIMILARITIES = {
    "a bare function": (
        lambda: attend(Q, K, V, similarity=torch.matmul),
        TypeError,
        ["similarity", "ScoreFunction(fn)"],
    ),
    "a class": (lambda: attend(Q, K, V, similarity=Softmax), TypeError, ["similarity", "Softmax()"]),
    "a name": (lambda: attend(Q, K, V, similarity="softmax"), TypeError, ["similarity", "'softmax'"]),
    "scale inf": (lambda: Softmax(scale=math.inf), ValueError, ["scale=inf", "finite", "Argmax()"]),
    "scale NaN": (lambda: Softmax(scale=math.nan), ValueError, ["scale=nan", "finite"]),
    "scale for other heads": (
        lambda: attend(Q, K, V, similarity=Softmax(scale=torch.ones(3))),
        ValueError,
        ["scale", "3 entries", "4 heads"],
    ),
    "scale of two dimensions": (
        lambda: attend(Q, K, V, similarity=Softmax(scale=torch.ones(4, 6))),
        (ValueError, TypeError),
        ["scale", "(4, 6)"],
    ),
    "scale that is text": (lambda: Softmax(scale="2"), (ValueError, TypeError), ["scale", "'2'"]),
    "degree 0": (lambda: Polynomial(degree=0), ValueError, ["degree=0", "1 or more"]),
    "degree 2.5": (lambda: Polynomial(degree=2.5), ValueError, ["degree=2.5", "whole number"]),
    "constant NaN": (lambda: Polynomial(constant=math.nan), ValueError, ["constant=nan", "finite"]),
    "slope −1": (lambda: Additive(slope=-1), ValueError, ["slope=-1", "[0, 1]"]),
    "slope 2": (lambda: Additive(slope=2), ValueError, ["slope=2", "[0, 1]"]),
    "slope NaN": (lambda: Additive(slope=math.nan), ValueError, ["slope=nan", "[0, 1]"]),
    "additive of wide queries": (
        lambda: attend(Q, K, V, similarity=Additive()),
        ValueError,
        ["query has 8", "takes 1", "weight="],
    ),
    "weight of another width": (
        lambda: attend(Q, K, V, similarity=Additive(weight=torch.ones(5))),
        ValueError,
        ["query has 8", "takes 5"],
    ),
    "weight for other heads": (
        lambda: attend(Q, K, V, similarity=Additive(weight=torch.ones(3, 8))),
        ValueError,
        ["weight", "3 rows", "4 heads"],
    ),
    "weight of three dimensions": (
        lambda: Additive(weight=torch.ones(1, 3, 8)),
        TypeError,
        ["weight", "(heads, dim)"],
    ),
    "scores of another shape": (
        lambda: attend(Q, K, V, similarity=ScoreFunction(lambda q, k: q.sum(-1))),
        ValueError,
        ["ScoreFunction", "(2, 4, 6)", "(..., N, M)"],
    ),
    "features 0": (lambda: RandomFeatures(0), ValueError, ["features=0", "1 or more"]),
    "phi that cannot be called": (lambda: FeatureMap(3), TypeError, ["phi", "callable", "int"]),
    "fn that cannot be called": (lambda: ScoreFunction(3), TypeError, ["fn", "callable", "int"]),
}

OPTIONS = {
    "unknown strategy": (
        lambda: attend(Q, K, V, strategy="flash"),
        ValueError,
        ["strategy='flash'", "auto", *STRATEGIES],
    ),
    "strategy that is no name": (lambda: attend(Q, K, V, strategy=3), ValueError, ["strategy=3", "auto"]),
    "strategy that refuses": (
        lambda: attend(Q, K, V, strategy="factored"),
        ValueError,
        ["'factored' refuses", "no finite feature map", "These would do", "fused", "tiled"],
    ),
    "approximation unasked": (
        lambda: attend(Q, K, V, strategy="random"),
        ValueError,
        ["'random' refuses", "exact=False", "These would do"],
    ),
    "approximation unasked, as an object": (
        lambda: attend(Q, K, V, strategy=LowRank(2)),
        ValueError,
        ["'lowrank' refuses", "exact=False"],
    ),
    "rank 0": (lambda: LowRank(0), ValueError, ["rank=0", "1 or more"]),
    "rank 0, projected": (lambda: Projected(0), ValueError, ["rank=0", "1 or more"]),
    "projection of another length": (
        lambda: attend(Q, K, V, strategy=Projected(2, key_projection=torch.ones(2, 9)), exact=False),
        ValueError,
        ["key_projection", "9 keys", "6"],
    ),
    **{
        f"dropout {share}": (
            lambda share=share: attend(Q, K, V, dropout=share),
            ValueError,
            [f"dropout={share!r}", "[0, 1)"],
        )
        for share in (1.0, -0.1, 2, math.nan, math.inf, "0.1", None)
    },
    "nothing to plan": (lambda: explain(Q[:0], K[:0], V[:0]), ValueError, ["explain()", "nothing to plan"]),
}

EVERYTHING = {
    f"{group}: {name}": entry
    for group, entries in {
        "tensors": TENSORS,
        "graphs": GRAPHS,
        "positions": POSITIONS,
        "neighbors": NEIGHBORS,
        "similarities": SIMILARITIES,
        "options": OPTIONS,
    }.items()
    for name, entry in entries.items()
}


@pytest.mark.parametrize("call, kind, words", EVERYTHING.values(), ids=EVERYTHING)
def test_says_what_is_wrong(call, kind, words):
    before = attend(Q, K, V)
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    missing = [word for word in words if str(word) not in message]
    assert not missing, f"{missing} not in: {message}"
    # Nothing half done or remembered: the same mistake fails the same way, and a right call works as before.
    with pytest.raises(type(caught.value)) as again:
        call()
    assert str(again.value) == message
    assert torch.equal(attend(Q, K, V), before)


@pytest.mark.parametrize(
    "wrong, right",
    [
        ({"position": Relative(torch.zeros(5))}, {"position": Relative(torch.zeros(11))}),
        ({"neighbors": Segments([2, 3])}, {"neighbors": Segments([2, 4])}),
        ({"strategy": "random"}, {"strategy": "random", "exact": False}),
        ({"strategy": "factored"}, {"strategy": "factored", "similarity": Polynomial(2)}),
        ({"dropout": 1.0}, {"dropout": 0.5}),
    ],
    ids=str,
)
def test_a_right_call_after_a_wrong_one(wrong, right):
    with pytest.raises(ValueError):
        attend(Q, K, V, **wrong)
    assert attend(Q, K, V, **right).shape == V.shape
    with pytest.raises(ValueError):
        attend(Q, K, V, **wrong)


def test_a_table_long_enough_for_one_length_is_not_trusted_with_another():
    """The same table object, first within its reach, then beyond, then within again."""
    position = Relative(torch.zeros(7))
    short, long = torch.randn(1, 4, 2), torch.randn(1, 5, 2)
    for _ in range(2):
        assert attend(short, short, short, position=position).shape == short.shape
        with pytest.raises(ValueError, match="7 entries"):
            attend(long, long, long, position=position)


def test_graphs_alike_but_for_their_edges_are_told_apart():
    """Two graphs of one shape: what is remembered of the first must not be used for the second."""
    x = torch.randn(1, 40, 2)
    near = Graph.from_edges(list(range(40)), list(range(40)), nodes=40)
    far = Graph.from_edges(list(range(40)), list(reversed(range(40))), nodes=40)
    position = Relative(torch.zeros(3))
    attend(x, x, x, neighbors=near, position=position)
    with pytest.raises(ValueError, match="distances up to 39"):
        attend(x, x, x, neighbors=far, position=position)


def test_edge_attributes_are_checked_each_time():
    """A graph with the same attributes of other shapes is another call."""
    graph = Graph.complete(6)
    assert attend(Q, K, V, neighbors=graph.with_edges(bias=torch.zeros(36))).shape == V.shape
    with pytest.raises(ValueError, match="edge bias"):
        attend(Q, K, V, neighbors=graph.with_edges(bias=torch.zeros(3, 36)))
    assert attend(Q, K, V, neighbors=graph.with_edges(bias=torch.zeros(4, 36))).shape == V.shape


@pytest.mark.parametrize("strategy", ["auto", "reference", "tiled", "fused", "banded"])
def test_parameters_of_another_precision_are_converted(strategy):
    """Tables, slopes and scales are often kept in another precision than what they act on."""
    options = {"neighbors": Window(2), "strategy": strategy}
    expected = attend(Q, K, V, similarity=Softmax(torch.ones(4)), position=Alibi(torch.ones(4)), **options)
    double = {"similarity": Softmax(torch.ones(4).double()), "position": Alibi(torch.ones(4).double())}
    out = attend(Q, K, V, **double, **options)
    assert out.dtype == torch.float32 and torch.allclose(out, expected, atol=1e-6)
    if strategy not in ("fused",):
        out = attend(Q, K, V, similarity=Additive(weight=torch.ones(8).double()), **options)
        assert out.dtype == torch.float32


def test_numbers_that_are_not_whole():
    with pytest.raises(
        TypeError, match=r"Segments\(lengths\): takes a list of whole numbers, got \[1.5, 2\]"
    ):
        heedful.Segments([1.5, 2])
    with pytest.raises(TypeError, match=r"Global\(indices\): takes a list of whole numbers"):
        heedful.Global(0)


def test_a_feature_map_that_maps_nothing():
    x = torch.randn(1, 3, 4)
    with pytest.raises(ValueError, match=r"phi must map \(..., 4\) to \(..., features\); it made \(\)"):
        heedful.attend(x, x, x, similarity=heedful.FeatureMap(torch.sum))


def test_a_device_is_looked_at_each_time():
    """A call like one that went well, but for where its table or graph is."""
    graph = Graph.from_edges([0, 1], [1, 2], nodes=6)
    for right, wrong in (
        ({"position": Relative(torch.zeros(11))}, {"position": Relative(torch.zeros(11, device="meta"))}),
        ({"neighbors": graph}, {"neighbors": graph.to("meta")}),
    ):
        attend(Q, K, V, **right)
        with pytest.raises(ValueError, match="on meta, query on cpu"):
            attend(Q, K, V, **wrong)


def test_without_numbers_there_are_shapes_and_gradients():
    q = torch.empty(2, 4, 6, 8, device="meta", requires_grad=True)
    table = torch.zeros(11, device="meta")
    out = attend(q, q, q[..., :5], neighbors=Causal(), position=Relative(table))
    assert out.shape == (2, 4, 6, 5) and out.device.type == "meta"
    assert torch.autograd.grad(out.sum(), q)[0].shape == q.shape
    with pytest.raises(ValueError, match="must match"):
        attend(q, q[..., :7], q)
