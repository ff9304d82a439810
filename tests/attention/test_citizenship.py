"""Every strategy lives with the rest of PyTorch: derivatives of any order and mode, torch.func, compile,
autocast, dtypes, layouts and empty tensors. A strategy in the registry without an example here is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import heedful
from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    Global,
    Graph,
    Mask,
    Polynomial,
    RandomFeatures,
    Relative,
    Rotary,
    Segments,
    Softmax,
    T5Buckets,
    Uniform,
    Window,
)
from heedful.attention.strategies import STRATEGIES, LowRank, Projected, Random, Strategy

KEYS, QUERIES = 7, 6
SOURCE = [0, 1, 2, 3, 3, 5, 6, 0, 2, 2]
TARGET = [0, 0, 0, 1, 2, 2, 5, 5, 4, 4]  # node 3 hears nobody, node 4 hears 2 twice


@dataclass(frozen=True)
class Example:
    """A call a strategy takes. `options` makes its keyword arguments of parameters, which get gradients."""

    name: str
    strategy: str | Strategy
    options: Callable[..., dict]
    parameters: tuple[tuple[int, ...], ...] = ()
    dim: int = 4

    @property
    def way(self) -> str:
        return self.strategy if isinstance(self.strategy, str) else self.strategy.name

    @property
    def exact(self) -> bool:
        return STRATEGIES[self.way].exact

    @property
    def graph(self) -> bool:
        return "graph" in self.name

    def gradients(self, out: Tensor, leaves: list[Tensor], direction: Tensor | None = None) -> list[Tensor]:
        """Of every leaf; a mean alone may have none for query and key, which says that they are zero."""
        found = torch.autograd.grad(out, leaves, direction, allow_unused=True)
        silent = {0, 1} if "mean" in self.name else set()
        assert {place for place, gradient in enumerate(found) if gradient is None} == silent
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    def draw(
        self, seed: int, *, lead=(), heads=2, key_heads=2, queries=QUERIES, keys=KEYS, dtype=torch.float64
    ):
        """Query, key, value and parameters."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [
            (*lead, heads, queries, self.dim),
            (*lead, key_heads, keys, self.dim),
            (*lead, key_heads, keys, 3),
        ]
        if heads is None:
            shapes = [(*shape[: len(lead)], *shape[len(lead) + 1 :]) for shape in shapes]
        return [
            torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)
            for s in [*shapes, *self.parameters]
        ]

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor, strategy=None
    ) -> Tensor:
        strategy = strategy or self.strategy
        return heedful.attend(
            query, key, value, **self.options(*parameters), strategy=strategy, exact=self.exact
        )

    def judge(self, *tensors: Tensor) -> Tensor:
        """The answer in float64: by the reference, or for approximations by themselves."""
        return self(*(x.double() for x in tensors), strategy="reference" if self.exact else None)


GRAPH = Graph.from_edges(SOURCE, TARGET, sources=KEYS, targets=QUERIES)


def graph(**edges) -> Graph:
    return GRAPH.with_edges(**edges) if edges else GRAPH


TABLE = 2 * KEYS + 1

EXAMPLES = [
    Example(
        "softmax, relative",
        "reference",
        lambda t: {"neighbors": Causal(), "position": Relative(t)},
        ((TABLE,),),
    ),
    Example(
        "graph, all attributes",
        "reference",
        lambda b, k, v: {"neighbors": graph(bias=b, key=k, value=v)},
        ((10,), (10, 4), (10, 3)),
    ),
    Example("softmax", "fused", lambda: {}),
    Example(
        "learned scale", "fused", lambda s: {"similarity": Softmax(scale=s), "neighbors": Causal()}, ((2,),)
    ),
    Example(
        "window, relative", "fused", lambda t: {"neighbors": Window(2), "position": Relative(t)}, ((TABLE,),)
    ),
    Example("window", "flex", lambda: {"neighbors": Window(2)}),
    Example("alibi", "tiled", lambda s: {"neighbors": Causal(), "position": Alibi(s)}, ((2,),)),
    Example(
        "polynomial, t5", "tiled", lambda t: {"similarity": Polynomial(2), "position": T5Buckets(t)}, ((8,),)
    ),
    Example("gatv2", "tiled", lambda a: {"similarity": Additive(weight=a)}, ((2, 4),)),
    Example("polynomial", "factored", lambda: {"similarity": Polynomial(2)}),
    Example("elu, rotary", "factored", lambda: {"similarity": EluKernel(), "position": Rotary()}),
    Example("elu", "scan", lambda: {"similarity": EluKernel(), "neighbors": Causal()}),
    Example(
        "polynomial, alibi",
        "scan",
        lambda s: {"similarity": Polynomial(2), "neighbors": Causal(), "position": Alibi(s)},
        ((2,),),
    ),
    Example(
        "elu, relative",
        "toeplitz",
        lambda t: {"similarity": EluKernel(), "position": Relative(t)},
        ((TABLE,),),
    ),
    Example("additive", "sorted", lambda: {"similarity": Additive()}, dim=1),
    Example("softmax", "banded", lambda: {"neighbors": Window(1)}),
    Example(
        "additive, relative",
        "banded",
        lambda t: {"similarity": Additive(), "neighbors": Causal() & Window(2), "position": Relative(t)},
        ((TABLE,),),
        dim=1,
    ),
    Example("graph, gat", "sparse", lambda: {"similarity": Additive(), "neighbors": graph()}, dim=1),
    Example(
        "graph, gatv2",
        "sparse",
        lambda a: {"similarity": Additive(weight=a), "neighbors": graph()},
        ((2, 4),),
    ),
    Example("graph, bias", "sparse", lambda b: {"neighbors": graph(bias=b)}, ((10,),)),
    Example("graph, mean", "sparse", lambda: {"similarity": Uniform(), "neighbors": graph()}),
    Example("graph, kernel", "sparse", lambda: {"similarity": Polynomial(2), "neighbors": graph()}),
    Example("softmax", LowRank(rank=3), lambda: {}),
    Example("softmax", Projected(rank=3), lambda: {}),
    Example("softmax", Random(features=6), lambda: {}),
    Example("causal", Random(features=6), lambda: {"neighbors": Causal()}),
]


def every(*, without: tuple[str, ...] = ()):
    """Examples as test parameters."""
    return pytest.mark.parametrize(
        "example", [pytest.param(e, id=f"{e.way}: {e.name}") for e in EXAMPLES if e.way not in without]
    )


def first_of_each(*, without: tuple[str, ...] = ()):
    firsts = {e.way: e for e in reversed(EXAMPLES)}
    return pytest.mark.parametrize(
        "example", [pytest.param(e, id=e.way) for e in firsts.values() if e.way not in without]
    )


def wanting(tensors: list[Tensor]) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    found, wanted = found.detach(), wanted.detach()
    assert found.shape == wanted.shape
    assert bool(found.isfinite().all())
    scale = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
    error = float((found.double() - wanted.double()).abs().max()) if wanted.numel() else 0.0
    assert error <= tolerance * scale, f"off by {error:.2g}"


def test_every_strategy_has_an_example():
    assert {example.way for example in EXAMPLES} == set(STRATEGIES)


# Derivatives


@every(without=("flex",))
def test_gradient(example, seed):
    assert gradcheck(example, wanting(example.draw(seed)))


@every(without=("flex",))
def test_gradient_of_the_gradient(example, seed):
    assert gradgradcheck(example, wanting(example.draw(seed)), fast_mode=True, atol=1e-4)


ONE_TENSOR = {
    "reference": {},
    "fused": {},
    "tiled": {},
    "banded": {"neighbors": Window(1)},
    "sparse": {"neighbors": Window(1), "similarity": Polynomial()},
    "factored": {"similarity": EluKernel()},
    "scan": {"similarity": Polynomial(), "neighbors": Causal()},
    "toeplitz": {"similarity": EluKernel(), "neighbors": Causal()},
    "sorted": {"similarity": Additive()},
}


@pytest.mark.parametrize("strategy", ONE_TENSOR)
@pytest.mark.parametrize("inside", [False, True])
def test_one_tensor_as_query_key_and_value(strategy, inside, seed):
    """A recorded backward pass that asks for each of the three must not be given the sum of them."""
    width = 1 if strategy == "sorted" else 4
    x = torch.randn(1, 2, 5, width, dtype=torch.float64, requires_grad=True)

    def gradient(way, **options):
        y = 2 * x if inside else x
        out = heedful.attend(y, y, y, strategy=way, **ONE_TENSOR[strategy])
        return torch.autograd.grad(out.square().sum(), x, **options)[0]

    expected = gradient("reference")
    close(gradient(strategy), expected)
    close(gradient(strategy, create_graph=True), expected)


@every(without=("flex",))
def test_forward_mode(example, seed):
    assert gradcheck(example, wanting(example.draw(seed)), check_forward_ad=True, check_backward_ad=False)


def test_flex_is_forward_only_on_a_cpu(seed):
    example = next(e for e in EXAMPLES if e.way == "flex")
    tensors = example.draw(seed, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"flex.*trains on the GPU only.*These would do: .*fused"):
        example(*wanting(tensors))
    with forward_ad.dual_level():
        tangents = [torch.ones_like(x) for x in tensors]
        try:
            out = example(*(forward_ad.make_dual(x, t) for x, t in zip(tensors, tangents, strict=True)))
        except (ValueError, RuntimeError, NotImplementedError):
            return  # refused, as it may; what it may not do is forget the tangent
        expected = torch.func.jvp(
            lambda *x: example(*x, strategy="reference"), tuple(tensors), tuple(tangents)
        )[1]
        close(forward_ad.unpack_dual(out).tangent, expected, 1e-4)


@every(without=("flex", "toeplitz"))
def test_func_transforms_agree_with_autograd(example, seed):
    tensors = example.draw(seed)
    leaves = wanting(tensors)
    out = example(*leaves)
    direction = torch.randn_like(out)
    expected = example.gradients(out, leaves, direction)
    places = tuple(range(len(tensors)))
    close(example(*tensors), out.detach())

    found = torch.func.grad(lambda *x: (example(*x) * direction).sum(), argnums=places)(*tensors)
    for a, b in zip(found, expected, strict=True):
        close(a, b)

    tangents = tuple(torch.randn_like(x) for x in tensors)
    value, tangent = torch.func.jvp(example, tuple(tensors), tangents)
    close(value, out.detach())
    slope = sum(float((t * g).sum()) for t, g in zip(tangents, expected, strict=True))
    assert float((tangent * direction).sum()) == pytest.approx(slope, rel=1e-8, abs=1e-8)

    jacobian = torch.func.jacrev(example, argnums=0)(*tensors)
    close((jacobian * direction[(..., *[None] * tensors[0].dim())]).sum(tuple(range(out.dim()))), expected[0])


@every(without=("flex", "toeplitz"))
@pytest.mark.parametrize("places", [(0, 0, 0), (0, None, None), (None, 1, 0), (2, 0, None)], ids=str)
def test_vmap(example, places, seed):
    tensors = example.draw(seed)
    stacked = [
        x if place is None else torch.stack([x, 2 * x, x.flip(-1)], place)
        for x, place in zip(tensors[:3], places, strict=True)
    ]
    rest = tensors[3:]
    found = torch.func.vmap(example, in_dims=(*places, *[None] * len(rest)))(*stacked, *rest)
    for n in range(3):
        alone = [x if place is None else x.select(place, n) for x, place in zip(stacked, places, strict=True)]
        close(found[n], example(*alone, *rest))


@every(without=("flex", "toeplitz"))
def test_gradients_of_each_sample(example, seed):
    """vmap over grad, parameters included: per-sample gradients."""
    batches = [example.draw(seed + n) for n in range(2)]
    gradient = torch.func.grad(lambda *x: example(*x).square().sum(), argnums=tuple(range(len(batches[0]))))
    found = torch.func.vmap(gradient)(*(torch.stack(pair) for pair in zip(*batches, strict=True)))
    for n, tensors in enumerate(batches):
        for a, b in zip(found, gradient(*tensors), strict=True):
            close(a[n], b)


@pytest.mark.parametrize("transform", ["vmap", "grad", "compile"])
def test_toeplitz_refuses_tracing_and_auto_goes_on(transform, seed):
    example = next(e for e in EXAMPLES if e.way == "toeplitz")
    tensors = example.draw(seed)

    def through(strategy):
        run = lambda *x: example(*x, strategy=strategy)  # noqa: E731
        if transform == "vmap":
            return torch.func.vmap(run, in_dims=(0, 0, 0, None))(
                *(x[None] for x in tensors[:3]), *tensors[3:]
            )[0]
        if transform == "grad":
            return torch.func.grad(lambda q: run(q, *tensors[1:]).sum())(tensors[0])
        return torch.compile(run, backend="eager", fullgraph=True)(*tensors)

    with pytest.raises(Exception, match="guard against small normalisers looks at values"):
        through("toeplitz")
    close(through("auto"), through("reference"))


# torch.compile


def compiled(function, backend: str, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, **options)


@first_of_each(without=("flex", "toeplitz"))
def test_compiles_whole_forward_and_backward(example, seed):
    tensors = example.draw(seed)
    run = compiled(example, "aot_eager")
    leaves, again = wanting(tensors), wanting(tensors)
    out, expected = run(*leaves), example(*again)
    close(out, expected)
    direction = torch.randn_like(out)
    for a, b in zip(
        torch.autograd.grad(out, leaves, direction),
        torch.autograd.grad(expected, again, direction),
        strict=True,
    ):
        close(a, b)


def transformed(call, transform, tensors):
    """What torch.func makes of a call, and what to give it."""
    gradients = torch.func.grad(lambda *x: call(*x).square().sum(), argnums=tuple(range(len(tensors))))
    if transform == "grad of copies":
        return torch.func.vmap(gradients), [torch.stack([x, x.flip(-1)]) for x in tensors]
    pushed = lambda *x: torch.func.jvp(call, x, tuple(t.cos() for t in x))  # noqa: E731
    return {"none": lambda *x: (call(*x),), "grad": gradients, "jvp": pushed}[transform], tensors


@every(without=("flex", "toeplitz"))
@pytest.mark.parametrize("transform", ["grad", "grad of copies", "jvp"])
def test_function_transforms_compile(example, transform, seed):
    function, tensors = transformed(example, transform, example.draw(seed))
    for found, wanted in zip(compiled(function, "aot_eager")(*tensors), function(*tensors), strict=True):
        close(found, wanted)


@pytest.mark.parametrize("transform", ["none", "grad", "grad of copies", "jvp"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"similarity": Polynomial(3), "strategy": "factored"},
        {"similarity": Polynomial(4), "neighbors": Causal(), "strategy": "scan"},
        {"similarity": RandomFeatures(20), "neighbors": Window(3), "strategy": "banded"},
        {"strategy": "random", "exact": False},
    ],
    ids=str,
)
def test_what_is_made_once_and_kept_compiles(options, dynamic, transform, seed):
    """Monomials and directions: tensors that a compiler is given while it looks, at any depth."""
    if torch.__version__ < "2.12" and dynamic and transform == "grad" and options["strategy"] == "factored":
        pytest.skip("before torch 2.12 gradients of index_select of a symbolic size break in torch itself")
    tensors = [torch.randn(1, 2, 30, 4, dtype=torch.float64) for _ in range(3)]
    function, tensors = transformed(lambda *x: heedful.attend(*x, **options), transform, tensors)
    run = compiled(function, "aot_eager", dynamic=dynamic)
    for found, wanted in zip(run(*tensors), function(*tensors), strict=True):
        close(found, wanted)


@pytest.mark.parametrize(
    "way, name", [("factored", "polynomial"), ("fused", "softmax"), ("sparse", "graph, gat")]
)
def test_compiles_by_inductor(way, name, seed):
    example = next(e for e in EXAMPLES if (e.way, e.name) == (way, name))
    tensors = example.draw(seed, dtype=torch.float32)
    leaves, again = wanting(tensors), wanting(tensors)
    out, expected = compiled(example, "inductor")(*leaves), example(*again)
    close(out, expected, 1e-5)
    for a, b in zip(
        torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(expected.sum(), again), strict=True
    ):
        close(a, b, 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbors": Causal()},
        {"neighbors": Window(3), "position": Alibi()},
        {"similarity": Polynomial(2)},
        {"similarity": EluKernel(), "neighbors": Causal()},
        {"similarity": Softmax(), "strategy": "tiled"},
        {"neighbors": Window(2), "strategy": "banded"},
        {"similarity": Polynomial(2), "strategy": "factored"},
        {"similarity": EluKernel(), "neighbors": Causal(), "strategy": "scan"},
        {"similarity": Additive(), "strategy": "sorted"},
    ],
    ids=str,
)
def test_one_compiled_function_takes_many_lengths(options, seed):
    run = compiled(lambda q, k, v: heedful.attend(q, k, v, **options), "aot_eager")
    dim = 1 if isinstance(options.get("similarity"), Additive) else 4
    # More lengths than dynamo would trace one by one: where the graph must be whole, its limit is an error.
    for length in (6, 7, 9, 11, 12, 14, 15, 18, 21, 25, 30):
        q, k = torch.randn(2, 1, 2, length, dim, dtype=torch.float64)
        v = torch.randn(1, 2, length, 3, dtype=torch.float64)
        close(run(q, k, v), heedful.attend(q, k, v, **{**options, "strategy": "reference"}))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbors": Causal(), "position": Alibi()},
        {"neighbors": Window(3) | Global([0]), "position": Rotary()},
        {"neighbors": Segments([10, 20])},
        {"neighbors": Mask(torch.ones(30, 30).tril().bool())},
        {"position": Relative(torch.arange(59) / 59)},
        {"position": T5Buckets(torch.arange(64.0).view(2, 32) / 64)},
        {"similarity": Softmax(scale=0.3)},
        {"similarity": Polynomial(2, constant=0.5)},
        {"similarity": Polynomial(4), "neighbors": Causal()},
        {"similarity": RandomFeatures(20)},
        {"similarity": EluKernel(), "neighbors": Causal()},
        {"similarity": Additive(slope=0.1, weight=torch.ones(2, 4))},
        {"similarity": Uniform(), "neighbors": Window(2)},
    ],
    ids=str,
)
def test_compiles_where_every_number_is_a_variable(options, seed):
    """torch.compile(dynamic=True) takes settings for variables, too, of which no plan could be made."""
    run = lambda q, k, v: heedful.attend(q, k, v, **options)  # noqa: E731
    torch._dynamo.reset()
    compiled = torch.compile(run, dynamic=True, fullgraph=True, backend="eager")
    tensors = torch.randn(3, 1, 2, 30, 4, dtype=torch.float64).unbind()
    close(compiled(*tensors), run(*tensors))


@pytest.mark.parametrize("dynamic", [False, True])
def test_leading_dimensions_that_are_shared_compile(dynamic, seed):
    """Queries of more dimensions than keys, and a mask of fewer than either."""
    query = torch.randn(2, 3, 4, 10, 5, dtype=torch.float64)
    key, value = torch.randn(2, 3, 2, 10, 5, dtype=torch.float64)
    for neighbors in (Causal(), Mask(torch.rand(3, 1, 10, 10) > 0.4)):
        torch._dynamo.reset()
        run = lambda *x, neighbors=neighbors: heedful.attend(*x, neighbors=neighbors)  # noqa: E731
        compiled = torch.compile(run, dynamic=dynamic, fullgraph=True, backend="eager")
        close(compiled(query, key, value), run(query, key, value))


@pytest.mark.parametrize("weight", [False, True])
def test_graphs_compile_where_every_number_is_a_variable(weight, seed):
    """And by the kernel planned: before torch 2.12 compiling looks like exporting, which cannot plan."""
    seen = []

    def backend(module, inputs):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module

    nodes, edges = 300, torch.randint(300, (2, 4000))
    graph = Graph.from_edges(*edges, nodes=nodes, weight=torch.rand(4000) if weight else None)
    s, t, x = (torch.randn(2, nodes, width) for width in (1, 1, 8))
    run = lambda s, t, x: heedful.attend(s, t, x, similarity=Additive(), neighbors=graph)  # noqa: E731
    torch._dynamo.reset()
    compiled = torch.compile(run, dynamic=True, fullgraph=True, backend=backend)
    close(compiled(s, t, x), run(s, t, x), 1e-5)
    assert any("sparse_forward" in name for name in seen)


def test_another_number_is_compiled_anew(seed):
    """Numbers are held to what they were, not taken for what they were."""
    torch._dynamo.reset()
    run = lambda x, scale: heedful.attend(x, x, x, similarity=Softmax(scale=scale))  # noqa: E731
    compiled = torch.compile(run, dynamic=True, fullgraph=True, backend="eager")
    x = torch.randn(2, 9, 4)
    for scale in (0.3, 0.7, 2.0):
        close(compiled(x, scale), run(x, scale), 1e-5)


# Numbers


@every()
@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.float64, 1e-10), (torch.float32, 2e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)],
)
def test_accuracy(example, dtype, tolerance, seed):
    tensors = example.draw(seed, dtype=dtype)
    if example.way == "flex" and dtype == torch.float64:
        with pytest.raises(ValueError, match="no float64"):
            example(*tensors)
        return
    out = example(*tensors)
    assert out.dtype == dtype
    # An approximation may choose other rows in another precision.
    if example.way == "lowrank" and dtype in (torch.float16, torch.bfloat16):
        assert bool(out.isfinite().all())
        return
    close(out, example.judge(*tensors), tolerance)


@every()
def test_autocast(example, seed):
    """The answer is what it would be for tensors of that dtype, and gradients come back in float32."""
    tensors = example.draw(seed, dtype=torch.float32)
    leaves = tensors if example.way == "flex" else wanting(tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = example(*leaves)
    assert out.dtype == torch.bfloat16
    close(out, example(*(x.bfloat16() for x in tensors[:3]), *tensors[3:]), 1e-2)
    if example.way == "flex":
        return
    for gradient, leaf in zip(example.gradients(out.float().sum(), leaves), leaves, strict=True):
        assert gradient.dtype == leaf.dtype and bool(gradient.isfinite().all())


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_takes_what_torch_takes(compiled, seed):
    """Weights as they are kept, and float64, which it leaves alone."""
    torch._dynamo.reset()
    attend = torch.compile(heedful.attend, fullgraph=True, backend="eager") if compiled else heedful.attend
    learned, x = torch.nn.Parameter(torch.randn(1, 2, 5, 8)), torch.randn(1, 2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        for call in (attend, torch.nn.functional.scaled_dot_product_attention):
            assert call(learned, x.bfloat16(), x).dtype == torch.bfloat16
            assert call(learned, learned, learned).dtype == torch.bfloat16
            assert call(x.double(), x.double(), x.double()).dtype == torch.float64
        with pytest.raises(Exception, match="key must be a tensor, got NoneType"):
            attend(x, None, x)
        with pytest.raises(Exception, match=r"query is torch\.int64"):
            attend(x.long(), x.long(), x.long())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"similarity": Polynomial(2)},
        {"similarity": EluKernel(), "neighbors": Causal()},
        {"similarity": RandomFeatures(20), "neighbors": Window(3)},
        {"similarity": Uniform()},
    ],
    ids=str,
)
def test_autocast_sums_wide(options, compiled, seed):
    """Inputs are rounded, as torch does; a thousand weights added up in bfloat16 would stop growing."""
    torch._dynamo.reset()
    run = lambda *x: heedful.attend(*x, **options)  # noqa: E731
    call = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    tensors = torch.rand(3, 1, 1, 1500, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(*tensors)
    close(found.double(), run(*(x.bfloat16().double() for x in tensors)).bfloat16().double(), 4e-3)


@every()
def test_same_bits_every_time(example, seed):
    dtype = torch.float32
    tensors = example.draw(seed, dtype=dtype)

    def once():
        leaves = tensors if example.way == "flex" else wanting(tensors)
        out = example(*leaves)
        return [out] if example.way == "flex" else [out, *example.gradients(out.square().sum(), leaves)]

    for a, b in zip(once(), once(), strict=True):
        assert torch.equal(a, b)


@every()
def test_inputs_stay_as_they_were(example, seed):
    tensors = example.draw(seed, dtype=torch.float32)
    before, versions = [x.clone() for x in tensors], [x._version for x in tensors]
    example(*tensors)
    if example.way != "flex":
        leaves = [x.requires_grad_() for x in tensors]
        example(*leaves).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert [x._version for x in tensors] == versions


@every()
def test_inference_mode(example, seed):
    tensors = example.draw(seed, dtype=torch.float32)
    expected = example(*tensors)
    with torch.inference_mode():
        close(example(*tensors), expected, 1e-6)
        close(example(*(x.clone() for x in tensors)), expected, 1e-6)


@every(without=("flex",))
def test_looking_first_and_training_later(example, seed):
    """What is made once and kept (features, edge lists, random directions) must forget who asked first."""
    forget_what_is_kept()
    tensors = example.draw(seed, dtype=torch.float32)
    with torch.inference_mode():
        example(*tensors)
    example(*wanting(tensors)).sum().backward()
    if example.way == "toeplitz":
        return
    forget_what_is_kept()
    torch.func.vmap(example, in_dims=(0, 0, 0, *[None] * len(example.parameters)))(
        *(x[None] for x in tensors[:3]), *tensors[3:]
    )
    example(*wanting(tensors)).sum().backward()


def forget_what_is_kept() -> None:
    from heedful.attention.neighbors import base
    from heedful.attention.similarity import polynomial, random_features

    base._GRAPHS.clear()
    polynomial._monomial_tensors.cache_clear()
    random_features._random_directions.cache_clear()


@pytest.mark.parametrize("similarity", [Polynomial(2), RandomFeatures(5)], ids=repr)
def test_patterns_are_listed_for_everyone(similarity, seed):
    """The edge list of a pattern outlives the call that asked for it."""
    forget_what_is_kept()
    x = torch.randn(1, 30, 3)
    with torch.inference_mode():
        heedful.attend(x, x, x, neighbors=Window(2), strategy="sparse")
        heedful.attend(x, x, x, similarity=similarity)
    x.requires_grad_()
    heedful.attend(x, x, x, neighbors=Window(2), strategy="sparse").sum().backward()
    heedful.attend(x, x, x, similarity=similarity).sum().backward()


# Layouts


@every()
def test_layout_of_memory_does_not_matter(example, seed):
    tensors = example.draw(seed, lead=(2,), dtype=torch.float32)
    expected = example(*tensors)
    q, k, v = tensors[:3]
    others = [
        [x.mT.contiguous().mT for x in (q, k, v)],
        [
            x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)
        ],  # as a layer makes it: heads inside
        [torch.stack([x, x], -1)[..., 0] for x in (q, k, v)],
        [q, k[:1].expand_as(k).clone() * 0 + k, torch.cat([v, v], -1)[..., : v.shape[-1]]],
    ]
    for other in others:
        close(example(*other, *tensors[3:]), expected, 1e-6)


@every()
def test_leading_dimensions_broadcast(example, seed):
    query, key, value, *rest = example.draw(seed, lead=(3,), dtype=torch.float32)
    key, value = key[:1], value[None, :1]
    expected = example(
        query[None], key.expand(1, 3, *key.shape[1:]), value.expand(1, 3, *value.shape[2:]), *rest
    )
    close(example(query, key, value, *rest), expected, 1e-6)
    alone = torch.stack([example(query[n], key[0], value[0, 0], *rest) for n in range(3)])
    close(example(query, key, value, *rest)[0], alone, 1e-5)


@every()
def test_without_heads(example, seed):
    if any((len(shape) == 2 and shape[0] == 2) or shape == (2,) for shape in example.parameters):
        pytest.skip("its parameters are per head")
    tensors = example.draw(seed, heads=1, key_heads=1, dtype=torch.float32)
    close(example(*(x[0] for x in tensors[:3]), *tensors[3:]), example(*tensors)[0], 1e-6)


@every()
def test_key_heads_are_shared(example, seed):
    if any(shape in ((2,), (2, 4)) for shape in example.parameters):
        example = Example(
            example.name,
            example.strategy,
            example.options,
            tuple((4, *shape[1:]) if shape[0] == 2 else shape for shape in example.parameters),
            example.dim,
        )
    query, key, value, *rest = example.draw(seed, heads=4, key_heads=2, dtype=torch.float32)
    expected = example(query, key.repeat_interleave(2, -3), value.repeat_interleave(2, -3), *rest)
    close(example(query, key, value, *rest), expected, 1e-6)
    if example.way == "flex":
        return
    leaves, again = wanting([query, key, value]), wanting([query, key, value])
    out = example(*leaves, *rest)
    repeated = example(again[0], *(x.repeat_interleave(2, -3) for x in again[1:]), *rest)
    for a, b in zip(
        example.gradients(out.square().sum(), leaves),
        example.gradients(repeated.square().sum(), again),
        strict=True,
    ):
        close(a, b, 1e-5)


@every()
def test_empty_batch(example, seed):
    tensors = example.draw(seed, lead=(0,), dtype=torch.float32)
    leaves = tensors if example.way == "flex" else wanting(tensors)
    out = example(*leaves)
    assert out.shape == (0, 2, QUERIES, 3) and out.dtype == torch.float32
    if example.way != "flex":
        out.sum().backward()
        assert leaves[0].grad.shape == leaves[0].shape


@every()
@pytest.mark.parametrize("queries, keys", [(0, 0), (0, 4), (4, 0), (1, 1), (1, 4), (4, 1)])
def test_short_lengths(example, queries, keys, seed):
    """Lengths 0 and 1 give what the formula gives, or the strategy says why not and "auto" does."""
    if example.graph:
        pytest.skip("its graph has nodes of its own; see the next test")
    # With one key a kernel's normaliser is a single (q·k + 1)², which may lie near zero: float32 features
    # then cancel, so the comparison is made where they have digits to spare.
    dtype = torch.float32 if example.way == "flex" else torch.float64
    tensors = example.draw(seed, queries=queries, keys=keys, dtype=dtype)
    tensors = tensors if example.way == "flex" else wanting(tensors)
    try:
        out = example(*tensors)
    except ValueError as error:
        assert "refuses" in str(error)
        out = example(*tensors, strategy="auto")
    expected = heedful.attend(*tensors[:3], **example.options(*tensors[3:]), strategy="reference")
    assert out.shape == (2, queries, 3)
    if example.exact or 0 in (queries, keys):
        close(out, expected, 1e-5)
    assert keys or bool((out == 0).all())
    if example.way != "flex":
        out.sum().backward()
        assert tensors[0].grad.shape == tensors[0].shape


@pytest.mark.parametrize("similarity", [Softmax(), Additive(), Polynomial(2), Uniform()], ids=repr)
@pytest.mark.parametrize("queries, keys", [(0, 0), (0, 3), (3, 0), (3, 3), (1, 1)])
def test_graphs_without_edges_or_nodes(similarity, queries, keys, seed):
    dim = 1 if isinstance(similarity, Additive) else 4
    empty = Graph.from_edges([], [], sources=keys, targets=queries)
    q = torch.randn(2, queries, dim, requires_grad=True)
    k, v = torch.randn(2, keys, dim, requires_grad=True), torch.randn(2, keys, 3, requires_grad=True)
    for strategy in ("auto", "sparse", "reference"):
        out = heedful.attend(q, k, v, similarity=similarity, neighbors=empty, strategy=strategy)
        assert torch.equal(out, torch.zeros(2, queries, 3))
        gradients = torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True)
        assert all(g is None or bool((g == 0).all()) for g in gradients)
