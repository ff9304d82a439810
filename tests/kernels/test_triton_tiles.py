"""Pairs by tiles against all pairs at once: interpreted without a GPU, at small sizes."""

import pytest
import torch

from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Global,
    Mask,
    Polynomial,
    Relative,
    Segments,
    Softmax,
    T5Buckets,
    Uniform,
    Window,
    attend,
)
from heedful.attention.neighbors import Tile
from heedful.attention.strategies import by_tiles, squares
from heedful.kernels import sparse_operators, tiles
from heedful.kernels.tiles import FAR, Pairs

from .compiling import TRANSFORMS, Operators, transformed

pytest.importorskip("triton")


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    torch._dynamo.reset()
    return device


@pytest.fixture
def small(monkeypatch):
    """Tiles so small that a test has several."""
    monkeypatch.setattr(tiles, "GRAIN", 16)
    by_tiles._listing.cache_clear()
    yield
    by_tiles._listing.cache_clear()


@pytest.fixture
def ran(monkeypatch):
    """How often the kernels did."""
    calls, listen = [], tiles.listen
    monkeypatch.setattr(tiles, "listen", lambda *args: calls.append(1) or listen(*args))
    return calls


def compare(found, wanted, tolerance):
    for one, other in zip(found, wanted, strict=True):
        if one is None or other is None:  # nobody asks a uniform listener whom it prefers
            assert (one is None or not one.any()) and (other is None or not other.any())
            continue
        assert one.shape == other.shape and one.isfinite().all()
        assert (one.double() - other).norm() <= tolerance * other.norm().clamp_min(1e-30)


def table_of(rows, queries, keys, device):
    table = torch.randn(rows, queries + keys - 1, device=device)
    table[:, ::7] = -torch.inf  # some distances are silent
    table[:, queries - 1] = 0
    return table.requires_grad_()


PAIRS = {
    "dot": (Pairs("dot", scale=0.7), 0),
    "dot, the past": (Pairs("dot", low=0), 0),
    "dot, a window, a table a head": (Pairs("dot", low=-5, high=7, heads=2), 2),
    "dot, a table, dropped": (Pairs("dot", low=0, high=19, dropout=0.3, heads=2), 1),
    "square": (Pairs("power", 2), 0),
    "fourth power, a table a head": (Pairs("power", 4, high=40, heads=2), 2),
    "linear, dropped": (Pairs("power", 1, low=-20, dropout=0.4), 0),
    "additive": (Pairs("additive", slope=0.2), 0),
    "additive, a window, a table, dropped": (
        Pairs("additive", slope=0.1, low=-6, high=30, dropout=0.2, heads=2),
        2,
    ),
    "uniform, a table": (Pairs("uniform", high=FAR, heads=2), 2),
    "uniform, a window": (Pairs("uniform", low=-3, high=11), 0),
}


@pytest.mark.parametrize("sizes", [(40, 56, 8, 5), (56, 40, 20, 17)], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_every_kind(name, sizes, seed, device, small):
    (pairs, rows), (n, m, d, e) = PAIRS[name], sizes
    d = 1 if pairs.kind == "additive" else d
    q, k, v = (torch.randn(4, *shape, device=device) for shape in ((n, d), (m, d), (m, e)))
    if pairs.kind == "power" and pairs.degree == 1:  # without a sign, or what it is divided by may vanish
        q, k = q.abs(), k.abs()
    constants = torch.rand(4, n, device=device) + 0.5 if pairs.kind == "power" else None
    leaves = [x.requires_grad_() for x in (q, k, v)]
    leaves += [table_of(rows, n, m, device)] if rows else []
    seeds = torch.tensor([seed], device=device) if pairs.dropout else None
    exact = [x.detach().double().requires_grad_() for x in leaves]
    wide = None if constants is None else constants.double()
    out = tiles.tile_attention(
        *leaves[:3], pairs, constants=constants, table=leaves[3] if rows else None, seed=seeds
    )
    expected = tiles.composite(*exact[:3], wide, exact[3] if rows else None, seeds, pairs)
    gradient = torch.randn_like(expected)
    found = torch.autograd.grad(out, leaves, gradient.float(), allow_unused=True)
    # The gradient of −∞ is 0 times what is silent.
    wanted = [g if g is None else g.nan_to_num() for g in torch.autograd.grad(
        expected, exact, gradient, allow_unused=True)]  # fmt: skip
    compare([out, *found], [expected, *wanted], 1e-5)


PATTERNS = {
    "everyone": lambda n: Everyone(),
    "causal": lambda n: Causal(),
    "window": lambda n: Causal() & Window(13),
    "segments": lambda n: Segments([n // 3, n - n // 3]),
    "global": lambda n: Window(5) | Global([0, 30]),
    "mask": lambda n: Mask(torch.arange(n)[:, None] % 3 != torch.arange(n) % 4),
}
POSITIONS = {
    "none": lambda n, heads: None,
    "alibi": lambda n, heads: Alibi(torch.rand(heads).requires_grad_()),
    "relative": lambda n, heads: Relative(torch.randn(heads, 2 * n + 1).requires_grad_()),
    "t5": lambda n, heads: T5Buckets(torch.randn(heads, 8).requires_grad_()),
}
SIMILARITIES = {
    "softmax": Softmax(),
    "learned": Softmax(torch.tensor(0.4, requires_grad=True)),
    "square": Polynomial(2),
    "cube": Polynomial(3, constant=2.0),
    "elu": EluKernel(),
    "map": FeatureMap(torch.exp, positive=True),
    "additive": Additive(0.2),
    "uniform": Uniform(),
}


def parameters(similarity, position):
    found = [getattr(position, name, None) for name in ("slopes", "entries")]
    found += [getattr(similarity, "scale", None)]
    return [x for x in found if isinstance(x, torch.Tensor)]


def moved(thing, device):
    for name in ("slopes", "entries", "scale", "allowed"):
        part = getattr(thing, name, None)
        if isinstance(part, torch.Tensor) and part.device.type != device:
            part = part.detach().to(device).requires_grad_(part.requires_grad)
            setattr(thing, name, part)
    return thing


def given(similarity, pattern, position, seed, device, n=47, heads=4, dtype=torch.float32):
    torch.manual_seed(seed)
    neighbors = moved(PATTERNS[pattern](n), device)
    placed = moved(POSITIONS[position](n, heads), device)
    similarity = moved(SIMILARITIES[similarity], device)
    d = 1 if isinstance(similarity, Additive) else 6
    size = 0.5 if isinstance(similarity, Polynomial) else 1.0
    query = size * torch.randn(2, heads, n, d, device=device)
    key, value = size * torch.randn(2, 2, n, d, device=device), torch.randn(2, 2, n, 7, device=device)
    leaves = [x.to(dtype).requires_grad_() for x in (query, key, value)]
    return leaves, {"similarity": similarity, "neighbors": neighbors, "position": placed}


def differentiated(leaves, options, strategy, gradient=None):
    out = attend(*leaves, strategy=strategy, **options)
    gradient = torch.ones_like(out).cumsum(-2) / 10 if gradient is None else gradient.to(out.dtype)
    wanted = [*leaves, *parameters(options["similarity"], options["position"])]
    return [out, *torch.autograd.grad(out, wanted, gradient, allow_unused=True)]


@pytest.mark.parametrize("place", range(len(PATTERNS)))
@pytest.mark.parametrize("turn", range(3))
def test_attend(turn, place, seed, device, small, ran):
    """Each pattern with each of three similarities, and another position each time."""
    similarity, position = ("softmax", "square", "additive")[turn], list(POSITIONS)[(turn + place) % 4]
    check_against_the_reference(similarity, list(PATTERNS)[place], position, seed, device, ran)


@pytest.mark.parametrize("pattern", ["window", "global"])
@pytest.mark.parametrize("similarity", ["learned", "cube", "elu", "map", "uniform"])
def test_attend_with_other_similarities(similarity, pattern, seed, device, small, ran):
    check_against_the_reference(similarity, pattern, "relative", seed, device, ran)


def check_against_the_reference(similarity, pattern, position, seed, device, ran):
    leaves, options = given(similarity, pattern, position, seed, device)
    gradient = torch.randn(2, 4, 47, 7, device=device)
    if similarity == "cube":  # the first may hear so few that what they are divided by is near 0
        gradient[:, :, :20] = 0
    found = differentiated(leaves, options, "tiled", gradient)
    assert ran
    exact = [x.detach().double().requires_grad_() for x in leaves]
    wanted = differentiated(exact, options, "reference", gradient)
    compare(found[similarity == "cube" :], wanted[similarity == "cube" :], 1e-4)


@pytest.mark.parametrize("similarity", ["softmax", "square", "additive"])
def test_half_precision(similarity, seed, device, small, ran):
    """As many digits as it has, though sums are wide. The interpreter cannot multiply bfloat16."""
    leaves, options = given(similarity, "window", "relative", seed, device, dtype=torch.float16)
    gradient = torch.randn(2, 4, 47, 7, device=device).half()
    found = differentiated(leaves, options, "tiled", gradient)
    assert ran and found[0].dtype == torch.float16
    exact = [x.detach().double().requires_grad_() for x in leaves]
    compare(found, differentiated(exact, options, "reference", gradient), 3e-3)


def test_banded_runs_them_too(seed, device, small, ran):
    leaves, options = given("softmax", "window", "alibi", seed, device)
    assert all(map(torch.equal, *(differentiated(leaves, options, way) for way in ("banded", "tiled"))))
    assert len(ran) == 2


@pytest.mark.parametrize("pattern", ["everyone", "global"])
def test_dropout_drops_what_the_reference_drops(pattern, seed, device, small, ran):
    leaves, options = given("square", pattern, "relative", seed, device)
    found = []
    for tensors, way in (
        (leaves, "tiled"),
        ([x.detach().double().requires_grad_() for x in leaves], "reference"),
    ):
        torch.manual_seed(seed)
        found.append(differentiated(tensors, {**options, "dropout": 0.4}, way))
    assert ran
    compare(*found, 1e-4)


def test_unequal_lengths_align_at_the_end(seed, device, small, ran):
    q, k, v = (torch.randn(2, n, 8, device=device) for n in (20, 50, 50))
    for neighbors in (Causal(), Window(9), Global([2]) | Window(3)):
        for a, b, c in ((q, k, v), (k, q, q)):
            if isinstance(neighbors, Window | Causal) or len(a[0]) <= len(b[0]):
                found = attend(a, b, c, neighbors=neighbors, strategy="tiled")
                wanted = attend(a.double(), b.double(), c.double(), neighbors=neighbors, strategy="reference")
                compare([found], [wanted], 1e-5)
    assert ran


def test_nobody_heard(seed, device, small, ran):
    table = torch.full((41,), -torch.inf, device=device)
    table[:5] = 0.0  # only those sixteen or more ahead
    leaves = [torch.randn(1, 20, 4, device=device).requires_grad_() for _ in range(3)]
    for similarity in (Softmax(), Polynomial(2), Uniform()):
        out = attend(*leaves, similarity=similarity, position=Relative(table), strategy="tiled")
        assert ran and out.isfinite().all() and not out[:, 4:].any() and out[:, :4].any()
        found = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in found)


def test_a_forbidden_key_changes_nothing(seed, device, small, ran):
    (q, k, v), options = given("softmax", "global", "none", seed, device)
    allowed = options["neighbors"].graph(47, 47, "cpu")
    heard = torch.zeros(47, 47, dtype=torch.bool)
    heard[allowed.target, allowed.source] = True
    before = attend(q, k, v, strategy="tiled", **options)
    for j in (1, 17, 46):
        with torch.no_grad():
            other, said = k.clone(), v.clone()
            other[..., j, :], said[..., j, :] = 100.0, torch.nan
        after = attend(q, other, said.nan_to_num(1e6), strategy="tiled", **options)
        same = (before == after).all(-1).all(0).all(0).cpu()
        assert torch.equal(same, ~heard[:, j])


def test_second_derivatives(seed, device, small, ran):
    leaves, options = given("square", "window", "relative", seed, device)
    found = []
    for tensors, way in (
        (leaves, "tiled"),
        ([x.detach().double().requires_grad_() for x in leaves], "reference"),
    ):
        out = attend(*tensors, strategy=way, **options)
        (first,) = torch.autograd.grad(out.square().sum(), tensors[0], create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), tensors[1:]))
    assert ran
    compare(*found, 1e-3)


def test_one_tensor_under_three_names(seed, device, small, ran):
    q = torch.randn(2, 40, 4, device=device).requires_grad_()
    out = attend(q, q, q, neighbors=Window(6), strategy="tiled").square().sum()
    plain, recorded = (
        torch.autograd.grad(out, q, retain_graph=True, create_graph=again)[0] for again in (False, True)
    )
    assert ran and (plain - recorded).norm() <= 1e-4 * plain.norm()


@pytest.mark.parametrize("at_once", [1, 600, 1 << 20])
@pytest.mark.parametrize("pattern", ["segments", "global", "mask", "window", "causal"])
def test_what_is_listed(pattern, at_once, seed, device, small, monkeypatch):
    """However much is looked at together: which pairs, and the same tiles by listener and by speaker."""
    monkeypatch.setattr(squares, "AT_ONCE", at_once)
    square = pattern in ("segments", "mask")
    for queries, keys in ((61, 61),) if square else ((61, 61), (40, 90), (16, 33)):
        neighbors = moved(PATTERNS[pattern](keys), device)
        listing = by_tiles._listing.__wrapped__(neighbors, queries, keys, torch.device(device))
        wanted = neighbors.mask(Tile.whole(queries, keys, torch.device(device)))
        assert torch.equal(tiles._unlisted(listing, queries, keys), wanted)
        starts, listeners, which = listing.by_speaker
        columns = torch.repeat_interleave(starts.diff())
        assert torch.equal(listing.grid()[listeners.long(), columns], which)
        assert len(which) == len(listing.bits) - 1 == (listing.grid() > 0).sum()


def test_a_mask_that_changes_is_seen(seed, device, small, ran):
    x, allowed = torch.randn(1, 40, 4, device=device), torch.rand(40, 40, device=device) < 0.5
    neighbors = Mask(allowed)
    for _ in range(2):
        found = attend(x, x, x, neighbors=neighbors, strategy="tiled")
        compare([found], [attend(*[x.double()] * 3, neighbors=neighbors, strategy="reference")], 1e-5)
        allowed.logical_not_()
    assert len(ran) == 2


def test_who_transforms_a_call_gets_torch(seed, device, small, ran):
    q, k, v = torch.randn(3, 5, 1, 20, 4, device=device).unbind()
    run = lambda *x: attend(*x, neighbors=Window(3), strategy="tiled")  # noqa: E731
    assert torch.allclose(torch.vmap(run)(q, k, v), run(q, k, v), atol=1e-5)
    _, moving = torch.func.jvp(run, (q, k, v), (k, v, q))
    assert moving.isfinite().all() and len(ran) == 1


@pytest.mark.parametrize(
    ("similarity", "position"),
    [
        ("softmax", "none"),
        ("softmax", "relative"),
        ("square", "alibi"),
        ("additive", "relative"),
        ("uniform", "alibi"),
    ],
)
def test_compiled_is_one_operator_and_the_same_to_the_bit(similarity, position, seed, device, small):
    leaves, options = given(similarity, "window", position, seed, device)
    wanted = [*leaves, *parameters(options["similarity"], options["position"])]
    run, backend = lambda *x: attend(*x, strategy="tiled", dropout=0.3, **options), Operators()
    found = []
    for call in (run, torch.compile(run, fullgraph=True, backend=backend)):
        torch.manual_seed(seed)
        out = call(*leaves)
        found.append((out, *torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)))
    assert len(backend.seen) == 1
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_vmap_inside_what_is_compiled(dropout, own, seed, device, small):
    """Copies fold into the batch; those with a table of their own, or that drop pairs, come one by one."""
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, 3, 1, 2, 40, 4, device=device).unbind()
    tables = torch.randn(3, 2, 81, device=device)

    def run(q, k, v, table):
        options = {"neighbors": Window(7), "position": Relative(table), "strategy": "tiled"}
        return attend(q, k, v, dropout=dropout, **options)

    leaves = [x.requires_grad_() for x in (q, k, v, tables if own else tables[0].clone())]
    axes, backend = (0, 0, 0, 0 if own else None), Operators()
    every = torch.func.vmap(run, axes, randomness="same")
    found = []
    for call in (torch.compile(every, fullgraph=True, backend=backend), lambda *x: one_by_one(run, axes, x)):
        torch.manual_seed(seed)
        out = call(*leaves)
        found.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    compare(*found, 1e-4)
    assert len(backend.seen) == 1


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms_inside_what_is_compiled(transform, seed, device, small):
    """Torch computes them: operators pass on no tangents, nor gradients under torch.func."""
    torch.manual_seed(seed)
    tensors = torch.randn(3, 1, 2, 9, 3, device=device)
    compare(
        *transformed(transform, lambda *x: attend(*x, neighbors=Window(3), strategy="tiled"), tensors), 1e-4
    )


def one_by_one(run, axes, tensors):
    drawn, outs = torch.get_rng_state(), []
    for copy in range(len(tensors[0])):
        torch.set_rng_state(drawn)  # all drop the same
        outs.append(run(*(x if axis is None else x[copy] for x, axis in zip(tensors, axes, strict=True))))
    return torch.stack(outs)


@pytest.mark.parametrize(("kind", "dropout"), [("dot", 0.3), ("power", 0.0), ("uniform", 0.3)])
def test_opcheck(kind, dropout, seed, device, small):
    from heedful.kernels import tile_operators as operators

    q, k, v = torch.randn(3, 4, 20, 5, device=device).unbind()
    constants = torch.rand(4, 20, device=device) if kind == "power" else None
    table = torch.randn(2, 39, device=device)
    drawn = torch.tensor([seed], device=device)
    settings = (kind, 2 if kind == "power" else 1, 0.0, 0.5, -3, 9, dropout, 2)
    plain = (q, k, v, constants, table, drawn, *settings, True)
    out, *kept = operators.tile_attention(*plain)
    learned = (x.clone().requires_grad_() for x in (q, k, v))
    torch.library.opcheck(
        operators.tile_attention, (*learned, constants, table.clone().requires_grad_(), *plain[5:])
    )
    given = (torch.randn_like(out), *plain[:6], out, *kept, *settings)
    for needs in ([True] * 4, [False, False, True, False], [False, False, False, True]):
        torch.library.opcheck(operators.tile_attention_backward, (*given, needs))


WIDTHS = [(16, 16), (64, 64), (100, 5), (8, 128), (128, 128)]


@pytest.mark.gpu
@pytest.mark.parametrize("place", range(len(WIDTHS)))
@pytest.mark.parametrize("kind", ["softmax", "square", "additive"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_large(dtype, kind, place, seed):
    """As they are on a GPU: whole tiles, every type, the same bits each time."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    n, (d, e), pattern = 1100, WIDTHS[place], ("everyone", "window", "global")[place % 3]
    torch.manual_seed(seed)
    query, key = (torch.randn(2, 4, n, 1 if kind == "additive" else d, device="cuda") for _ in range(2))
    if kind == "square":
        query, key = query * d**-0.5, key
    leaves = [x.to(dtype).requires_grad_() for x in (query, key, torch.randn(2, 4, n, e, device="cuda"))]
    options = {
        "similarity": SIMILARITIES[kind],
        "neighbors": {"everyone": Everyone(), "window": Causal() & Window(150)}.get(
            pattern, Window(20) | Global([0, 700])
        ),
        "position": Relative(torch.randn(4, 2 * n + 1, device="cuda").requires_grad_()),
    }
    gradient = torch.randn(2, 4, n, e, device="cuda")
    found, again = (differentiated(leaves, options, "tiled", gradient) for _ in range(2))
    assert all(map(torch.equal, found, again))
    exact = [x.detach().double().requires_grad_() for x in leaves]
    wanted = differentiated(exact, options, "reference", gradient.to(dtype))
    compare(found, wanted, {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype])
