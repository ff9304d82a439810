"""The plan is the truth about a call: from shapes alone, whole, serialisable, and what attend() follows."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
from time import perf_counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    Everyone,
    Global,
    Graph,
    Mask,
    Plan,
    Polynomial,
    Relative,
    Rotary,
    Segments,
    Softmax,
    Uniform,
    Window,
    attend,
    explain,
)
from heedful.attention import constants as constants_module
from heedful.attention import operator
from heedful.attention import plan as plan_module
from heedful.attention.measure import peak_memory, training_step
from heedful.attention.problem import NeighborFacts, PositionFacts, Problem, SimilarityFacts
from heedful.attention.strategies import STRATEGIES, Call, LowRank, Strategy

# Each entry: similarity, neighbors, position, for 12 nodes and 2 heads.
CALLS = {
    "softmax": {},
    "causal": {"neighbors": Causal()},
    "window": {"neighbors": Causal() & Window(2), "position": Alibi()},
    "window and global": {"neighbors": Window(1) | Global([0])},
    "segments": {"neighbors": Segments([5, 7])},
    "relative": {"position": Relative(torch.zeros(2, 23))},
    "rotary": {"position": Rotary()},
    "polynomial": {"similarity": Polynomial(2)},
    "scan": {"similarity": EluKernel(), "neighbors": Causal(), "position": Alibi()},
    "toeplitz": {"similarity": EluKernel(), "position": Relative(torch.zeros(23))},
    "graph": {"neighbors": Graph.from_edges([0, 1, 2], [3, 4, 5], nodes=12)},
    "dense graph": {"neighbors": Graph.complete(12)},
    "mean": {"similarity": Uniform(), "neighbors": Graph.from_edges([0, 1, 2], [3, 4, 5], nodes=12)},
    "everyone, additive": {"similarity": Additive()},
    "dropout": {"dropout": 0.1},
    "approximate": {"exact": False},
}

calls = pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)


def tensors(
    options: dict, device: str = "cpu", *, training: bool = False, length: int = 12, dtype=torch.float32
):
    dim = 1 if isinstance(options.get("similarity"), Additive) else 4
    shapes = (3, 2, length, dim), (3, 2, length, dim), (3, 2, length, 5)
    return [torch.zeros(shape, device=device, dtype=dtype).requires_grad_(training) for shape in shapes]


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A calibration file of the test's own; plans are forgotten before and after."""
    path = tmp_path / "cache" / "calibration.json"
    monkeypatch.setattr(constants_module, "calibration_file", lambda: path)
    constants_module.forget()
    yield path
    monkeypatch.undo()
    constants_module.forget()


# What it says


@calls
@pytest.mark.parametrize("training", [False, True])
def test_shapes_are_enough(options, training):
    real, imagined = (
        explain(*tensors(options, device, training=training), **options) for device in ("cpu", "meta")
    )
    assert real == imagined


@calls
def test_everyone_is_heard(options):
    plan = explain(*tensors(options, training=True), **options)
    assert sorted(candidate.name for candidate in plan.candidates) == sorted(STRATEGIES)
    assert plan.chosen.reason is None and plan.strategy == plan.chosen.name
    for candidate in plan.candidates:
        if candidate.reason is not None:
            assert len(candidate.reason) > 8
            assert candidate.forward is candidate.backward is candidate.seconds is None
            continue
        for cost in (candidate.forward, candidate.backward):
            for field in dataclasses.fields(cost):
                number = getattr(cost, field.name)
                assert math.isfinite(number) and number >= 0, f"{candidate.name}: {field.name} is {number}"
            assert cost.flops > 0 and cost.bytes > 0 and cost.launches > 0
        assert 0 < candidate.seconds < math.inf
    able = [candidate.seconds for candidate in plan.candidates if candidate.reason is None]
    assert able == sorted(able) and plan.chosen.seconds == able[0]
    assert set(plan.rejected) == {c.name for c in plan.candidates} - {
        c.name for c in plan.candidates if not c.reason
    }


def test_approximations_wait_to_be_asked():
    x = torch.empty(1, 4, 4096, 8, device="meta")
    assert "exact=False" in explain(x, x, x).rejected["lowrank"]
    admitted = explain(x, x, x, exact=False)
    assert "lowrank" not in admitted.rejected and "random" not in admitted.rejected


def test_training_costs_more_than_looking():
    options = {}
    seen = explain(*tensors(options), **options)
    trained = explain(*tensors(options, training=True), **options)
    assert seen.chosen.backward is None and trained.chosen.backward is not None
    assert trained.chosen.seconds > seen.chosen.seconds
    with torch.no_grad():
        assert explain(*tensors(options, training=True), **options) == seen


@calls
def test_words_and_page_hold_everything(options):
    plan = explain(*tensors(options), **options)
    text, page = str(plan), plan._repr_html_()
    assert repr(plan) == text
    assert f"→ {plan.strategy}" in text and html.escape(f"→ {plan.strategy}") in page
    for candidate in plan.candidates:
        assert candidate.name in text and candidate.name in page
        if candidate.reason:
            assert candidate.reason in text
            assert html.escape(candidate.reason) in page
    assert plan.problem.similarity.name in text and plan.problem.neighbors.name in text


def test_page_is_escaped():
    def phi(x):
        return x.exp()

    phi.__name__ = "<script>alert(1)</script>"
    x = torch.zeros(1, 4, 2)
    page = explain(x, x, x, similarity=heedful.FeatureMap(phi))._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page


@calls
@pytest.mark.parametrize("analyze", [False, True])
def test_there_and_back_in_json(options, analyze):
    plan = explain(*tensors(options, training=True), **options)
    if analyze:
        plan = plan_module.with_measurements(plan, {plan.strategy: (0.1, 2.0)})
    text = plan.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert Plan.from_json(text) == plan


numbers = st.integers(1, 2**40)
ends = st.floats(allow_nan=False)
names = st.text(min_size=1).filter(lambda name: name not in ("inf", "-inf"))
problems = st.builds(
    Problem,
    *[numbers] * 7,
    dtype=st.sampled_from(["float64", "float32", "bfloat16"]),
    device=st.sampled_from(["cpu", "cuda"]),
    similarity=st.builds(
        SimilarityFacts, names, names, st.booleans(), st.none() | numbers, st.booleans(), st.integers(0, 9)
    ),
    neighbors=st.builds(
        NeighborFacts,
        names,
        st.floats(0, 1e18),
        interval=st.none() | st.tuples(ends, ends),
        reach=st.tuples(ends, ends),
        block=st.floats(0),
        complete=st.booleans(),
        graph=st.booleans(),
        attributes=st.lists(st.sampled_from(["weight", "bias", "key", "value"]), unique=True).map(tuple),
        repeated=st.booleans(),
        listed=st.booleans(),
        lasting=st.booleans(),
    ),
    position=st.none() | st.builds(PositionFacts, names, st.booleans(), st.booleans()),
    dropout=st.booleans(),
    gradient=st.booleans(),
    exact=st.booleans(),
    transform=st.sampled_from(["", "compile", "functorch"]),
)


@settings(max_examples=60, deadline=None)
@given(problems)
def test_facts_survive_being_taken_apart(problem):
    assert Problem.from_flat(problem.flat()) == problem
    assert Problem.from_dict(problem.to_dict()) == problem
    assert hash(Problem.from_dict(problem.to_dict())) == hash(problem)
    assert all(isinstance(value, (str, int, float, bool, type(None))) for value in problem.flat())
    plan = Plan(problem, "reference", (), "here", False)
    assert Plan.from_json(plan.to_json()) == plan


# What it costs


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "sparse"), ("cuda", "sparse"), ("cuda", "tiled"), ("cuda", "flex")]
)
def test_listing_what_a_mask_allows_is_counted(device, name):
    """Every call does it, for a mask may have changed."""
    x, allowed = torch.empty(4, 512, 16, device="meta"), torch.ones(512, 512, dtype=torch.bool)
    for neighbors in (Mask(allowed), Mask(allowed) & Causal()):
        problem = explain(x, x, x, neighbors=neighbors, device=device).problem
        assert not problem.neighbors.lasting
        kept = problem.replace(neighbors=dataclasses.replace(problem.neighbors, lasting=True))
        anew, once = (
            next(entry.seconds for entry in plan_module.make_plan(asked).candidates if entry.name == name)
            for asked in (problem, kept)
        )
        assert anew > 1.5 * once


def test_a_seen_shape_is_planned_once():
    options = {"similarity": Polynomial(2), "neighbors": Causal() & Window(3)}
    first = explain(*tensors(options), **options)
    assert explain(*tensors(options), **options) is first
    start = perf_counter()
    for _ in range(100):
        explain(*tensors(options, "meta"), **options)
    assert (
        perf_counter() - start
    ) / 100 < 5e-3  # a plan made anew takes longer than all of these together might


def test_plans_depend_on_the_number_of_threads():
    options, threads = {}, torch.get_num_threads()
    first = explain(*tensors(options), **options)
    try:
        torch.set_num_threads(threads + 1)
        assert explain(*tensors(options), **options).device != first.device
    finally:
        torch.set_num_threads(threads)


def test_planning_never_looks_at_values():
    """Not a number in sight: meta tensors have none, and reading one would raise."""
    for options in CALLS.values():
        explain(*tensors(options, "meta", training=True), **options)
    x = torch.full((1, 6, 4), math.nan)
    assert explain(x, x, x).strategy == explain(x.nan_to_num(), x.nan_to_num(), x.nan_to_num()).strategy


def test_memory_limits_what_is_considered(monkeypatch):
    x = torch.empty(1, 1, 1024, 8, device="meta")
    roomy = explain(x, x, x, similarity=Polynomial(2))
    assert "reference" not in roomy.rejected
    small = dataclasses.replace(constants_module.constants("cpu"), memory=1e6)
    monkeypatch.setattr(plan_module, "constants", lambda device: small)
    plan_module.forget_plans()
    try:
        tight = explain(x, x, x, similarity=Polynomial(2))
        assert "would hold" in tight.rejected["reference"]
        assert tight.chosen.forward.memory <= 1e6
        # Whoever names it takes the risk.
        assert explain(x, x, x, similarity=Polynomial(2), strategy="reference").strategy == "reference"
    finally:
        plan_module.forget_plans()


@pytest.fixture
def takes(monkeypatch):
    """Has the planner think that a strategy takes so many seconds, whatever the problem."""

    def takes(**seconds):
        here = constants_module.constants("cpu")
        known = {
            name: dict.fromkeys(("forward", "backward"), (time, 0.0, 0.0, 0.0))
            for name, time in seconds.items()
        }
        pretended = dataclasses.replace(here, seconds=here.seconds | known)
        monkeypatch.setattr(plan_module, "constants", lambda device: pretended)
        plan_module.forget_plans()

    yield takes
    plan_module.forget_plans()


def test_edges_are_added_up_in_a_fixed_order_on_a_gpu(takes, monkeypatch):
    """Even where it takes longer; but whoever names the other gets it, and so does who has no kernel."""
    pytest.importorskip("triton")
    x = torch.empty(1, 2, 5, 1, device="meta", requires_grad=True)
    graph = Graph.from_edges([0, 0, 1, 2, 3], [1, 1, 2, 3, 4], nodes=5)
    problem = explain(x, x, x, similarity=Additive(), neighbors=graph).problem.replace(device="cuda")
    takes(sparse=1.0)
    plan = plan_module.make_plan(problem)
    assert plan.candidates[0].name == "reference" and plan.strategy == "sparse"
    assert all("reference is passed over: it adds up" in text for text in (str(plan), plan._repr_html_()))
    assert Plan.from_json(plan.to_json()) == plan
    assert plan_module.make_plan(problem, "reference").strategy == "reference"
    assert plan_module.make_plan(problem.replace(device="cpu")).strategy == "reference"
    monkeypatch.setattr("heedful.attention.strategies.sparse.find_spec", lambda name: None)
    plan_module.forget_plans()
    assert plan_module.make_plan(problem).strategy == "reference"


def test_plain_attention_is_not_compiled_for_every_length_on_a_gpu(takes):
    takes(fused=2e-9, flex=1e-9)
    x = torch.empty(1, 2, 512, 16, device="meta")
    for neighbors in (Everyone(), Causal()):
        plan = plan_module.make_plan(explain(x, x, x, neighbors=neighbors).problem.replace(device="cuda"))
        assert plan.candidates[0].name == "flex" and plan.strategy == "fused"
        assert "flex is passed over: it compiles" in str(plan)
    # Where torch's kernels would have to be given a mask, there is more to gain.
    takes(**{"fused with a mask": 1.0, "flex": 1e-9})
    for options in ({"neighbors": Window(3)}, {"position": Alibi()}):
        plan = plan_module.make_plan(explain(x, x, x, **options).problem.replace(device="cuda"))
        assert plan.strategy == "flex" and not plan.notes()


def test_only_what_is_faster_is_passed_over(takes):
    takes(fused=1e-9)
    x = torch.empty(1, 2, 512, 16, device="meta")
    plan = plan_module.make_plan(explain(x, x, x).problem.replace(device="cuda"))
    assert plan.strategy == "fused" and "passed over" not in str(plan)


def test_a_name_is_kept_to():
    options = {"neighbors": Window(2)}
    for candidate in explain(*tensors(options), **options).candidates:
        if candidate.reason is None:
            plan = explain(*tensors(options), **options, strategy=candidate.name)
            assert plan.strategy == candidate.name
        else:
            with pytest.raises(ValueError, match="refuses"):
                explain(*tensors(options), **options, strategy=candidate.name)


def test_an_object_is_kept_to():
    plan = explain(*tensors({}), strategy=LowRank(rank=3), exact=False)
    assert plan.strategy == "lowrank" and plan.chosen.reason is None
    assert sorted(candidate.name for candidate in plan.candidates) == sorted(STRATEGIES)

    class Mine(Strategy):
        name = "mine"

        def accepts(self, problem):
            return None

        def cost(self, problem):
            return STRATEGIES["reference"].cost(problem)

        def run(self, call: Call):
            return call.value * 0 + 7

    mine = Mine()
    assert bool((attend(*tensors({}), strategy=mine) == 7).all())


@pytest.mark.parametrize("name", ["causal", "polynomial", "graph"])
@pytest.mark.parametrize("training", [False, True])
def test_analyze_measures_all_that_can_run(name, training):
    options = CALLS[name]
    for device in ("cpu", "meta"):
        plan = explain(*tensors(options, device, training=training), **options, analyze=True)
        for candidate in plan.candidates:
            measured = (candidate.measured, candidate.measured_memory)
            if candidate.reason:
                assert measured == (None, None)
            else:
                assert candidate.measured > 0 and candidate.measured_memory >= 0
        assert "measured" in str(plan)
    assert explain(*tensors(options, training=training), **options).chosen.measured is None


# What attend does


shapes = st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 4]), st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=60, deadline=None)
@given(
    shapes,
    st.sampled_from([Softmax(), Polynomial(2), EluKernel(), Additive(), Uniform()]),
    st.sampled_from([Everyone(), Causal(), Window(2), Causal() & Window(5), Window(1) | Global([0])]),
    st.sampled_from([None, Alibi(), Relative(torch.zeros(3), clamp=True)]),
    st.booleans(),
    st.booleans(),
)
def test_attend_does_what_explain_says(shape, similarity, neighbors, position, training, exact):
    batch, heads, queries, keys = shape
    dim = 1 if isinstance(similarity, Additive) else 4
    q = torch.randn(batch, heads, queries, dim, requires_grad=training)
    k, v = torch.randn(batch, 1, keys, dim), torch.randn(batch, 1, keys, 3)
    options = {"similarity": similarity, "neighbors": neighbors, "position": position, "exact": exact}
    ran: list[str] = []
    original = Strategy.__call__

    def spy(way, call):
        ran.append(way.name)
        return original(way, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Strategy, "__call__", spy)
        attend(q, k, v, **options)
        attend(q, k, v, **options)  # from memory
    assert ran == [explain(q, k, v, **options).strategy] * 2


# Constants


def own_constants(seconds: float) -> dict:
    return {name: {way: [seconds] * 4 for way in ("forward", "backward")} for name in STRATEGIES}


def test_calibration_is_used_and_said(own_file):
    options = {}
    before = explain(*tensors(options), **options)
    assert not before.calibrated and "heedful calibrate" in str(before)
    path = constants_module.save_calibration("cpu", {"seconds": own_constants(1e-9)})
    assert path == own_file
    after = explain(*tensors(options), **options)
    assert after.calibrated and ", calibrated" in str(after) and ", calibrated" in after._repr_html_()
    assert after.chosen.seconds != before.chosen.seconds


def test_a_new_calibration_changes_what_attend_does(own_file):
    q, k, v = tensors({}, length=64)
    slow_but_one = own_constants(1.0)
    for favourite in ("tiled", "reference", "fused"):
        entry = slow_but_one | {favourite: {way: [0.0, 0.0, 1e-15, 0.0] for way in ("forward", "backward")}}
        constants_module.save_calibration("cpu", {"seconds": entry})
        assert explain(q, k, v).strategy == favourite
        attend(q, k, v)
        assert favourite in {
            getattr(way, "name", way[0].name if isinstance(way, tuple) else None)
            for way in operator._CHOSEN.values()
        }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"x": 3}',
        '"text"',
        "\x00\xff",
        '{"DEVICE": {}}',
        '{"DEVICE": {"seconds": null}}',
        '{"DEVICE": {"seconds": []}}',
        '{"DEVICE": {"seconds": {"fused": 3}}}',
        '{"DEVICE": {"seconds": {"fused": {"forward": [1, 2]}}}}',
        '{"DEVICE": {"seconds": {"fused": {"forward": ["a", "b", "c", "d"]}}}}',
        '{"DEVICE": {"seconds": {"unheard of": {"forward": [1, 1, 1, 1], "backward": [1, 1, 1, 1]}}}}',
    ],
)
def test_a_broken_file_is_as_good_as_none(own_file, text):
    expected = explain(*tensors({}, training=True))
    own_file.parent.mkdir(parents=True)
    device = json.dumps(constants_module.device_name("cpu"))[1:-1]
    own_file.write_text(text.replace("DEVICE", device), encoding="latin-1")
    constants_module.forget()
    plan = explain(*tensors({}, training=True))
    assert plan.strategy == expected.strategy
    assert plan.chosen.seconds == expected.chosen.seconds
    constants_module.save_calibration("cpu", {"seconds": own_constants(1e-9)})  # and can be written over
    assert explain(*tensors({})).calibrated


def test_a_file_that_cannot_be_read(own_file):
    own_file.mkdir(parents=True)  # a folder where the file should be
    constants_module.forget()
    assert not explain(*tensors({})).calibrated


def test_saving_is_all_or_nothing(own_file, monkeypatch):
    constants_module.save_calibration("cpu", {"seconds": own_constants(1e-9)})
    before = own_file.read_text()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for target, name in ((os, "replace"), (json, "dump")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                constants_module.save_calibration("cpu", {"seconds": own_constants(5.0)})
        assert own_file.read_text() == before
    # A strategy's entries of other machines stay.
    everything = json.loads(before) | {"another machine": {"seconds": own_constants(1.0)}}
    own_file.write_text(json.dumps(everything))
    constants_module.save_calibration("cpu", {"seconds": own_constants(2e-9)})
    assert "another machine" in json.loads(own_file.read_text())
    assert not [path for path in own_file.parent.iterdir() if path != own_file], (
        "temporary files are left behind"
    )


def test_constants_ship_for_every_strategy():
    known = constants_module.constants("cpu")
    for name in STRATEGIES:
        for direction in ("forward", "backward"):
            terms = known.seconds[name][direction]
            assert len(terms) == len(constants_module.TERMS)
            assert all(term >= 0 and math.isfinite(term) for term in terms) and any(terms)


@pytest.mark.parametrize("neighbors", [heedful.Everyone(), heedful.Causal()], ids=str)
def test_tiles_take_memory_in_proportion_to_length(neighbors):
    """In the backward pass too, where every band has a gradient for all the keys it heard."""
    peaks = []
    for length in (1024, 4096):
        q, k, v = (torch.randn(1, 4, length, 8, requires_grad=True) for _ in "qkv")
        step = training_step(
            lambda q, k, v: heedful.attend(
                q, k, v, similarity=heedful.Polynomial(2), neighbors=neighbors, strategy="tiled"
            ),
            [q, k, v],
        )
        peaks.append(peak_memory(step))
    assert peaks[1] < 2 * peaks[0]  # the tiles themselves take most, and are as large for both


@pytest.mark.parametrize(
    "position", [heedful.Relative(torch.randn(4097)), heedful.Alibi()], ids=["table", "alibi"]
)
@pytest.mark.parametrize("training", [False, True])
def test_fused_writes_no_scores_out(position, training):
    """Beside a mask of its own; for masks it finds odd torch would, quietly, and five times slower."""
    heads, length = 4, 2048
    q, k, v = torch.randn(3, 1, heads, length, 8)

    def forward(q, k, v):
        return heedful.attend(q, k, v, position=position, strategy="fused")

    masks = heads if isinstance(position, heedful.Alibi) else 1
    call = training_step(forward, [q, k, v]) if training else lambda: forward(q, k, v)
    assert peak_memory(call) < 4 * length**2 * (masks + 1)
