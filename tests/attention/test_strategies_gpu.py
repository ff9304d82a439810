"""On a CUDA device every strategy gives what the reference gives on the CPU in float64, gradients too."""

import pytest
import torch

from heedful import Alibi, Causal, Relative, Window, attend, explain
from heedful.attention.calibrate import example
from heedful.attention.position import toeplitz_block
from heedful.attention.strategies import STRATEGIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICE = "cuda"
PROBLEMS = [
    ("softmax", "everyone", "none"),
    ("softmax", "causal", "none"),
    ("softmax", "causal", "relative"),
    ("softmax", "window:16", "alibi"),
    ("softmax", "global:8", "none"),
    ("softmax", "graph:6", "none"),
    ("polynomial", "everyone", "none"),
    ("polynomial", "causal", "none"),
    ("polynomial", "everyone", "relative"),
    ("polynomial", "graph:6", "none"),
    ("elu", "everyone", "none"),
    ("elu", "causal", "alibi"),
    ("additive", "everyone", "none"),
    ("additive", "graph:6", "none"),
    ("additive", "window:16", "none"),
    ("uniform", "everyone", "none"),
    ("uniform", "causal", "none"),
    ("uniform", "graph:6", "none"),
]
# Of the largest number. Half precision rounds what comes in, goes out and, in some kernels, the weights.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def drawn(problem, seed, device, dtype=torch.float32, length=200):
    found = example(*problem, heads=4, length=length, dim=16, training=True, device=device, seed=seed)
    tensors = [(0.5 * x).to(dtype) for x in (found.query, found.key, found.value)]
    return tensors, found.options


def gradients(tensors, options, strategy):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = attend(*leaves, strategy=strategy, **options)
    return out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out).cumsum(-1), allow_unused=True)


def expected(problem, seed, dtype):
    tensors, options = drawn(problem, seed, "cpu", dtype)
    return gradients([x.double() for x in tensors], options, "reference")


def close(found, wanted, dtype, rounding=(0.0,) * 4):
    """Up to a tolerance, or to a few times what rounding does to the reference itself in this precision."""
    for one, other, error in zip(found, wanted, rounding, strict=True):
        if one is None or other is None:  # nobody asks a uniform listener whom it prefers
            assert (one is None or not one.any()) and (other is None or not other.any())
            continue
        assert one.isfinite().all()
        allowed = max(TOLERANCE[dtype] * max(float(other.abs().max()), 1), 4 * error)
        assert (one.cpu().double() - other).abs().max() <= allowed


def rounding(problem, seed, dtype, wanted):
    """How far the reference is off on the CPU: a weight that all but vanishes is lost to any strategy."""
    found = gradients(*drawn(problem, seed, "cpu", dtype), "reference")
    pairs = zip(found, wanted, strict=True)
    return [0.0 if a is None or b is None else float((a.double() - b).abs().max()) for a, b in pairs]


def takers(tensors, options):
    """The exact strategies that train on these."""
    plan = explain(*(x.detach().requires_grad_() for x in tensors), **options)
    return [c.name for c in plan.candidates if not c.reason and STRATEGIES[c.name].exact]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=" ".join)
def test_every_strategy_agrees(problem, dtype, seed):
    tensors, options = drawn(problem, seed, DEVICE, dtype)
    wanted = expected(problem, seed, dtype)
    names = takers(tensors, options)
    assert len(names) >= 2  # the reference and at least one more
    errors = rounding(problem, seed, dtype, wanted)
    for name in [*names, "auto"]:
        close(gradients(tensors, options, name), wanted, dtype, errors)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p[1].startswith("graph")], ids=" ".join)
def test_graphs_give_the_same_digits_again(problem, seed):
    """Whatever is planned: a sum in any order differs in one of a few runs."""
    tensors, options = drawn(problem, seed, DEVICE)
    first, *others = (gradients(tensors, options, "auto") for _ in range(6))
    pairs = [pair for other in others for pair in zip(first, other, strict=True) if pair[0] is not None]
    assert pairs and all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("problem", PROBLEMS, ids=" ".join)
def test_the_planned_one_compiles_whole(problem, seed):
    torch.compiler.reset()  # all problems compile the same few lines, which torch does eight times
    tensors, options = drawn(problem, seed, DEVICE)
    compiled = torch.compile(lambda q, k, v: attend(q, k, v, **options), fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(*tensors), attend(*tensors, **options), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("problem", PROBLEMS, ids=" ".join)
def test_autocast(problem, seed):
    tensors, options = drawn(problem, seed, DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = attend(*tensors, **options)
    wanted = expected(problem, seed, torch.float32)[0]
    assert (found.cpu().double() - wanted).abs().max() <= TOLERANCE[torch.bfloat16] * max(
        wanted.abs().max(), 1
    )


@pytest.mark.parametrize("problem", PROBLEMS, ids=" ".join)
def test_twice_is_the_same_to_the_bit(problem, seed):
    """Whatever has no atomics: torch's own flash and flex backward passes have, and its sums over edges."""
    tensors, options = drawn(problem, seed, DEVICE)
    atomic = {"fused", "flex"} | ({"reference"} if problem[1].startswith("graph") else set())
    for name in set(takers(tensors, options)) - atomic:
        once, again = (gradients(tensors, options, name) for _ in range(2))
        for one, other in zip(once, again, strict=True):
            assert one is other is None or torch.equal(one, other), name


@pytest.mark.parametrize("name", ["sorted", "toeplitz", "banded", "tiled", "factored", "scan", "sparse"])
def test_memory_does_not_grow_with_pairs(name, seed):
    """Four times as long takes about four times the memory, not sixteen."""
    from heedful.attention.measure import peak_memory

    problem = {
        "sorted": ("additive", "everyone", "none"),
        "toeplitz": ("elu", "everyone", "relative"),
        "banded": ("softmax", "window:32", "none"),
        "tiled": ("polynomial", "everyone", "alibi"),
        "factored": ("polynomial", "everyone", "none"),
        "scan": ("polynomial", "causal", "none"),
        "sparse": ("softmax", "graph:8", "none"),
    }[name]
    peaks = []
    for length in (4096, 16384):
        tensors, options = drawn(problem, seed, DEVICE, length=length)
        peaks.append(peak_memory(lambda t=tensors, o=options: gradients(t, o, name), DEVICE))
    assert peaks[1] <= 6 * peaks[0]


@pytest.mark.parametrize("queries", [1, 20, 100, 127, 128, 130])
def test_flex_with_heads_that_share_keys(queries, seed):
    """Few queries are another kernel of torch's, which does not take every group of heads."""
    query = torch.randn(2, 6, queries, 32, device=DEVICE)
    key, value = torch.randn(2, 2, 3, 130, 32, device=DEVICE)
    options = {"position": Alibi(), "neighbors": Causal()}
    found = attend(query, key, value, strategy="flex", **options)
    wanted = attend(query.double(), key.double(), value.double(), strategy="reference", **options)
    assert (found - wanted).norm() <= 1e-4 * wanted.norm()


@pytest.mark.parametrize("features", [24, 48, 65, 96])
def test_flex_with_widths_that_are_no_power_of_two(features, seed):
    """Padded or not, gradients have the width of what they are gradients of."""
    torch.manual_seed(seed)
    tensors = [torch.randn(2, 2, 160, features, device=DEVICE) for _ in range(2)]
    tensors.append(torch.randn(2, 2, 160, features + 3, device=DEVICE))
    options = {"neighbors": Causal(), "position": Alibi()}
    wide = [x.double() for x in tensors]
    for found, wanted in zip(
        gradients(tensors, options, "flex"), gradients(wide, options, "reference"), strict=True
    ):
        assert found.shape == wanted.shape
        assert (found - wanted).abs().max() <= TOLERANCE[torch.float32] * wanted.abs().max()


@pytest.mark.parametrize("features", [16, 48, 64, 96, 128, 160])
@pytest.mark.parametrize("pattern", ["everyone", "causal, relative", "window"])
def test_flex_is_as_accurate_as_float32(pattern, features, seed):
    """Its products go by tensor cores, which alone round to 10 bits: that would be off by 3e-4."""
    torch.manual_seed(seed)
    tensors = [torch.randn(1, 4, 700, features, device=DEVICE) for _ in range(3)]
    options = {
        "everyone": {},
        "causal, relative": {
            "neighbors": Causal(),
            "position": Relative(torch.randn(4, 1399, device=DEVICE)),
        },
        "window": {"neighbors": Window(90)},
    }[pattern]
    wide = [x.double() for x in tensors]
    found, wanted = gradients(tensors, options, "flex"), gradients(wide, options, "reference")
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).norm() <= 5e-6 * other.norm()


@pytest.mark.parametrize("features", [32, 64, 128])
def test_flex_with_a_table_for_each_head_in_half_precision(features, seed):
    torch.manual_seed(seed)
    tensors = [torch.randn(1, 8, 1500, features, device=DEVICE).bfloat16() for _ in range(3)]
    options = {"neighbors": Causal(), "position": Relative(torch.randn(8, 2999, device=DEVICE))}
    wide = [x.double() for x in tensors]
    for one, other in zip(
        gradients(tensors, options, "flex"), gradients(wide, options, "reference"), strict=True
    ):
        assert (one - other).norm() <= 1e-2 * other.norm()


@pytest.mark.parametrize(("heads", "length"), [(8, 8919), (1, 23_300)])
def test_blocks_of_more_than_two_gigabytes(heads, length, seed):
    """Where torch's flip reads memory that is not its own."""
    torch.manual_seed(seed)
    table = torch.randn(heads, 2 * length - 1, device=DEVICE)
    block = toeplitz_block(table, (0, length), (0, length), length)
    assert block.numel() * 4 > 2**31
    for row in (0, 1, length // 2, length - 1):
        assert torch.equal(block[:, row], table[:, row : row + length].flip(-1))
