"""Every strategy gives what the formula says: output and all gradients, whatever the ingredients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

import heedful
from heedful import attention
from heedful.attention.neighbors import Neighbors
from heedful.attention.strategies import banded, base, factored, flex, scan, squares, tiled, toeplitz

from . import cases, naive
from .cases import NEIGHBORS, POSITIONS, SIMILARITIES, TOLERANCE, Piece, Shape, assert_agree, case, error

SHAPES = {
    "one head": Shape(heads=1, key_heads=1, queries=4, keys=4),
    "fewer queries": Shape(lead=(2,), heads=2, key_heads=1, queries=3, keys=6),
    "more queries": Shape(heads=2, key_heads=2, queries=6, keys=4),
}


@pytest.mark.parametrize(
    "kind, known",
    [(attention.Similarity, SIMILARITIES), (Neighbors, NEIGHBORS), (attention.Position, POSITIONS)],
)
def test_every_public_ingredient_is_among_the_cases(kind, known):
    pieces = [make(Shape(lead=(2,))) for make in known.values()]
    made = {type(piece.make(**piece.tensors)) for piece in pieces}
    public = {getattr(heedful, name) for name in heedful.__all__ if isinstance(getattr(heedful, name), type)}
    assert {entry for entry in public if issubclass(entry, kind)} <= made


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_reference_is_the_formula(similarity, neighbors):
    shapes = [
        like for like in SHAPES.values() if like.queries <= like.keys or not cases.needs_past(neighbors)
    ]
    for n, position in enumerate(filter(partial(cases.fits, similarity), POSITIONS)):
        shape = replace(shapes[n % len(shapes)], seed=n)
        example = case(shape, similarity, neighbors, position)
        args, call = example.build(example.tensors)
        expected = torch.from_numpy(naive.attend(*args, **call))
        assert error(example.output("reference"), expected, floor=1e-3) <= 1e-11, (position, shape)


# The judge is trusted; now everyone else

PROFILE = settings(
    max_examples=200,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PLAIN = [name for name in NEIGHBORS if ", " not in name]
CARRYING = [name for name in NEIGHBORS if ", " in name]
TREES = st.recursive(
    st.sampled_from(PLAIN), lambda inner: st.tuples(inner, st.sampled_from("&|"), inner), max_leaves=4
)


@st.composite
def shapes(draw):
    key_heads = draw(st.integers(1, 2))
    keys = draw(st.integers(1, 40))
    return Shape(
        lead=draw(st.sampled_from([(), (), (1,), (2,), (1, 2), (2, 1)])),
        heads=key_heads * draw(st.integers(1, 2)),
        key_heads=key_heads,
        queries=draw(st.one_of(st.just(keys), st.integers(1, 40))),
        keys=keys,
        dim=draw(st.sampled_from([2, 4])),
        value_dim=draw(st.integers(1, 5)),
        seed=draw(st.integers(0, 2**31)),
    )


def grow(tree, shape: Shape):
    """The pattern an expression tree stands for."""
    if isinstance(tree, str):
        return attention.neighbors.as_neighbors(NEIGHBORS[tree](shape).make())
    left, sign, right = grow(tree[0], shape), tree[1], grow(tree[2], shape)
    return left & right if sign == "&" else left | right


@st.composite
def patterns(draw, shape):
    """A nested pattern, a graph that carries something, or both of them at once."""
    tree = draw(TREES.filter(lambda tree: shape.queries <= shape.keys or not cases.needs_past(str(tree))))
    what = draw(st.sampled_from(["tree", "tree", "graph", "both"]))
    if what == "tree":
        return cases.fixed(grow(tree, shape))
    graph = NEIGHBORS[draw(st.sampled_from(CARRYING))](shape)
    if what == "graph":
        return graph
    pattern = grow(tree, shape)
    return Piece(lambda **tensors: pattern & graph.make(**tensors), graph.tensors)


@st.composite
def examples(draw, similarity):
    shape = draw(shapes())
    shape.dim = 1 if cases.scalar(similarity) else shape.dim
    known = [name for name in POSITIONS if cases.fits(similarity, name)]
    if similarity == "argmax":  # turned vectors are no longer whole numbers, and near ties are anybody's
        known = [name for name in known if not cases.rotary(name)]
    position = draw(st.sampled_from(known))
    neighbors = draw(patterns(shape))
    example = case(shape, similarity, neighbors, position)
    if shape.lead and draw(st.booleans()):
        for name in draw(st.sampled_from([("key",), ("value",), ("query",), ("key", "value")])):
            example.tensors[name] = example.tensors[name][:1]
    return example


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES)
@PROFILE
@given(data=st.data())
def test_every_strategy_agrees_with_the_reference_in_output_and_gradients(similarity, dtype, data):
    example = data.draw(examples(similarity))
    exact = example.rounded(dtype)
    wanted = exact.evaluate("reference")
    for strategy in [*example.able(dtype=dtype), "auto"]:
        found = example.evaluate(strategy, dtype)
        assert found["output"].dtype == dtype
        assert_agree(found, wanted, exact, strategy, TOLERANCE[dtype])


@pytest.mark.parametrize("strategy", cases.EXACT)
def test_every_exact_strategy_takes_part(strategy):
    """Or the test above would pass by trying nothing."""
    taken = {
        way
        for similarity, neighbors in (
            ("softmax", "window"),
            ("polynomial 2", "causal"),
            ("uniform", "everyone"),
            ("additive", "everyone"),
        )
        for way in case(Shape(queries=20, keys=20), similarity, neighbors, "none").able(
            gradient=False, dtype=torch.float32
        )
    }
    assert strategy in taken


@pytest.mark.parametrize(
    "neighbors", ["everyone", "causal", "window", "causal & window", "segments", "graph, all"]
)
@pytest.mark.parametrize(
    "similarity", ["softmax", "polynomial 2", "elu", "additive", "additive v2", "uniform"]
)
def test_the_pieces_work_is_cut_into_fit_together(similarity, neighbors, monkeypatch, seed):
    """The same with the smallest tiles, chunks and groups, of which there are then many."""
    monkeypatch.setattr(tiled, "SCORES_AT_ONCE", 1)
    monkeypatch.setattr(banded, "SCORES_AT_ONCE", 1)
    monkeypatch.setattr(factored, "FEATURES_AT_ONCE", 1)
    monkeypatch.setattr(toeplitz, "COLUMNS_AT_ONCE", 1)
    monkeypatch.setattr(scan, "chunk_length", lambda features: 7)
    for position, queries in (("none", 150), ("alibi, per head", 90), ("alibi, per head", 160)):
        if queries > 150 and cases.needs_past(neighbors):
            continue
        shape = Shape(heads=2, key_heads=1, queries=queries, keys=150, seed=seed)
        example = case(shape, similarity, neighbors, position)
        wanted = example.evaluate("reference")
        for strategy in example.able():
            assert_agree(example.evaluate(strategy), wanted, example, f"{strategy}, {position}", 1e-9)


@pytest.fixture
def chunks_together(monkeypatch):
    """A scan as on a GPU: several chunks a piece, several pieces, a rest."""
    pieces = scan._pieces
    monkeypatch.setattr(scan, "chunk_length", lambda features: 7)
    monkeypatch.setattr(base, "AT_ONCE_ELSEWHERE", 1000)
    monkeypatch.setattr(scan, "_pieces", lambda *sizes: pieces(*sizes[:-1], "cuda"))
    monkeypatch.setattr(scan, "_averages", lambda *facts: False)


@pytest.mark.parametrize("similarity", ["polynomial 2", "elu", "random features", "features", "uniform"])
def test_many_chunks_of_a_scan_at_once(similarity, chunks_together, seed):
    for position in ("none", "alibi, per head"):
        for queries in (150, 90, 160):
            shape = Shape(heads=2, key_heads=1, queries=queries, keys=150, seed=seed)
            example = case(shape, similarity, "causal", position)
            wanted = example.evaluate("reference")
            assert_agree(example.evaluate("scan"), wanted, example, f"scan, {position}", 1e-9)
    assert len(scan._pieces(2, 150, 4, "cpu")) > 2 and scan._pieces(2, 150, 4, "cpu")[0][0] > 1


@pytest.mark.parametrize("similarity", ["polynomial 2", "elu", "random features", "features", "uniform"])
def test_who_stands_last_scans_the_past_whatever_its_length(similarity, seed):
    """One listener hears everyone, which is its whole past: a scan takes it as it takes longer ones."""
    for position in ("none", "alibi, per head"):
        for neighbors in ("causal", "everyone"):
            for keys in (1, 2, 40):
                shape = Shape(heads=2, key_heads=1, queries=1, keys=keys, seed=seed)
                example = case(shape, similarity, neighbors, position)
                wanted = example.evaluate("reference")
                assert_agree(example.evaluate("scan"), wanted, example, f"scan, {position}, {keys}", 1e-9)


def test_a_map_may_treat_heads_differently(chunks_together, seed):
    """φ sees (..., heads, positions, dim), however positions are cut."""
    weight = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    similarity = heedful.FeatureMap(lambda x: torch.exp(x @ weight), size=5, positive=True)
    q, k, v = torch.randn(3, 3, 2, 150, 4, dtype=torch.float64).unbind()
    found = {}
    for way in ("scan", "reference"):
        out = heedful.attend(q, k, v, similarity=similarity, neighbors=heedful.Causal(), strategy=way)
        found[way] = out, *torch.autograd.grad(out.square().sum(), weight)
    for x, y in zip(*found.values(), strict=True):
        assert torch.allclose(x, y, rtol=1e-9)


@pytest.mark.parametrize("neighbors", [name for name in PLAIN if not name.startswith("graph")])
def test_flex_agrees_where_it_can_run(neighbors, seed):
    """Apart from the rest: on the CPU it is slow, and has no gradient."""
    position = [name for name in POSITIONS if not cases.rotary(name)][(seed + len(neighbors)) % 10]
    shape = Shape(lead=(2,), heads=4, key_heads=2, queries=19, keys=21, seed=seed)
    example = case(shape, "softmax, per head", neighbors, position)
    if "flex" not in example.able(gradient=False, dtype=torch.float32):
        pytest.skip("a mask of its own for each head")
    found = example.output("flex", torch.float32)
    assert error(found, example.rounded(torch.float32).output("reference")) <= 1e-4


@pytest.mark.parametrize("at_once", [1, 100_000, squares.AT_ONCE])
@pytest.mark.parametrize("neighbors", [name for name in PLAIN if not name.startswith("graph")])
def test_flex_looks_at_the_blocks_torch_would(neighbors, at_once, seed, monkeypatch):
    """And never at more pairs together than there is room for, where torch looks at all."""
    monkeypatch.setattr(squares, "AT_ONCE", at_once)
    for queries, keys in ((300, 300), (200, 600), (129, 513)):
        example = case(Shape(queries=queries, keys=keys, seed=seed), "softmax", neighbors, "none")
        pattern, seen = example.build(example.tensors)[1]["neighbors"], []
        if "flex" not in example.able(gradient=False, dtype=torch.float32):
            continue
        kept = type(pattern).allows

        def watched(self, i, j, *sizes, kept=kept, seen=seen):
            seen.append(i.numel() * j.numel())
            return kept(self, i, j, *sizes)

        with monkeypatch.context() as patch:
            patch.setattr(type(pattern), "allows", watched)
            found = flex._blocks.__wrapped__(pattern, queries, keys, torch.device("cpu"))
        assert max(seen, default=0) <= max(at_once, flex.BLOCK * (keys + 2 * flex.BLOCK))

        def mask_mod(batch, head, i, j, pattern=pattern, queries=queries, keys=keys):
            return pattern.allows(i + keys - queries, j, queries, keys)

        wanted = create_block_mask(mask_mod, None, None, queries, keys, device="cpu")
        for x, y in zip(found.as_tuple()[:-1], wanted.as_tuple()[:-1], strict=True):
            assert torch.equal(x, y) if torch.is_tensor(x) else x == y


# Dropout


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(
    "similarity", ["softmax", "polynomial 2", "additive", "additive v2", "uniform", "argmax"]
)
def test_dropout_falls_on_the_same_pairs_in_every_strategy(similarity, neighbors, seed):
    shape = Shape(lead=(2,), heads=4, key_heads=2, queries=19, keys=21, seed=seed)
    example = case(shape, similarity, neighbors, "alibi")
    results = {}
    for strategy in example.able(dropout=0.4):
        torch.manual_seed(seed)
        results[strategy] = example.evaluate(strategy, dropout=0.4)
    assert "reference" in results
    for strategy, found in results.items():
        assert_agree(found, results["reference"], example, strategy, 1e-9)


DROPPING = ["reference", "tiled", "banded", "sparse"]


def dropped(strategy: str, rate: float, draws: int):
    """Weights after dropout, many times over: (draws, queries, keys), and what they are without."""
    keys = 6
    q = torch.randn(1, 1, 5, 3, dtype=torch.float64).expand(draws, 1, 5, 3)
    k = torch.randn(1, 1, keys, 3, dtype=torch.float64).expand(draws, 1, keys, 3)
    v = torch.eye(keys, dtype=torch.float64).expand(draws, 1, keys, keys)
    call = {"neighbors": heedful.Window(1), "strategy": strategy}
    return heedful.attend(q, k, v, dropout=rate, **call)[:, 0], heedful.attend(q[0], k[0], v[0], **call)[0]


@pytest.mark.parametrize("strategy", DROPPING)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_the_share_it_says(strategy, rate, seed):
    torch.manual_seed(seed)
    draws = 4000
    found, undropped = dropped(strategy, rate, draws)
    # A weight is p/(1−rate) with probability 1−rate, else 0: its mean p, its deviation p·√(rate/(1−rate)).
    # Six deviations of the mean: with these thirty numbers, wrong by chance once in some ten million runs.
    deviation = undropped * (rate / (1 - rate) / draws) ** 0.5
    assert bool(((found.mean(0) - undropped).abs() <= 6 * deviation + 1e-12).all())
    heard = undropped > 0
    kept = (found[:, heard] > 0).double().mean()
    assert abs(kept - (1 - rate)) <= 6 * (rate * (1 - rate) / (draws * int(heard.sum()))) ** 0.5


@pytest.mark.parametrize("strategy", DROPPING)
def test_dropout_differs_from_call_to_call_and_from_head_to_head(strategy):
    first, second = dropped(strategy, 0.5, 40)[0], dropped(strategy, 0.5, 40)[0]
    assert not torch.equal(first > 0, second > 0)
    assert not torch.equal(first[0] > 0, first[1] > 0) or not torch.equal(first[0] > 0, first[2] > 0)


# Forbidden keys


@pytest.mark.parametrize("neighbors", [name for name in NEIGHBORS if name != "everyone"])
@pytest.mark.parametrize(
    "similarity", ["softmax", "polynomial 2", "elu", "additive", "additive v2", "uniform", "argmax"]
)
def test_what_a_listener_may_not_hear_does_not_reach_it(similarity, neighbors, seed):
    shape = Shape(lead=(2,), heads=2, key_heads=1, queries=21, keys=21, seed=seed)
    example = case(shape, similarity, neighbors, "alibi")
    pattern = example.build(example.tensors)[1]["neighbors"]
    places = [(b, h) for b in range(2) for h in range(2)]
    for row in (0, int(shape.integers(1, 20, 1)), 20):
        heard = {j for place in places for j, _ in naive.heard(pattern, place, row, 21, 21)}
        forbidden = [j for j in range(21) if j not in heard]
        for strategy in example.able():
            # An FFT mixes all terms and takes them apart again; its rounding depends on every one of them.
            tolerance = 1e-12 if strategy == "toeplitz" else 0.0
            _assert_deaf(example, shape, strategy, row, forbidden, tolerance)


def _assert_deaf(example, shape, strategy, row, forbidden, tolerance):
    leaves = example.leaves()
    args, call = example.build(leaves)
    out = heedful.attend(*args, **call, strategy=strategy)[..., row, :]
    gradients = torch.autograd.grad(out.square().sum(), args, allow_unused=True)
    for gradient in gradients[1:]:
        if gradient is not None:
            leaked = gradient[..., forbidden, :].abs().amax() if forbidden else 0.0
            assert leaked <= tolerance * (1 + gradient.abs().amax()), (
                f"{strategy}, row {row}: a gradient leaks"
            )
    for size in (1.0, 1e4):
        for name in ("key", "value"):
            changed = example.leaves()
            with torch.no_grad():
                changed[name][..., forbidden, :] = size * shape.normal(
                    *changed[name][..., forbidden, :].shape
                )
            args, call = example.build(changed)
            again = heedful.attend(*args, **call, strategy=strategy)[..., row, :]
            assert error(again, out) <= tolerance, f"{strategy}, row {row}: {name} of size {size:g} is heard"
