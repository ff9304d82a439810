"""Decoding in pieces gives what attending to the whole gives, from a state that is what it says."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import heedful
from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Polynomial,
    RandomFeatures,
    Relative,
    Rotary,
    Softmax,
    T5Buckets,
    Uniform,
    Window,
)
from heedful.attention.decode import CacheState
from heedful.attention.strategies import ScanState

from .cases import error, exponential

LENGTH, HEADS = 23, 4
TABLE = torch.randn(HEADS, 9, dtype=torch.float64)
CALLS = {
    "softmax": {},
    "softmax in a window": {"neighbors": Causal() & Window(4)},
    "softmax, alibi": {"position": Alibi()},
    "softmax, rotary": {"position": Rotary()},
    "softmax, rotary in a window": {"position": Rotary(interleaved=False), "neighbors": Window(5) & Causal()},
    "softmax, relative": {"position": Relative(TABLE, clamp=True)},
    "softmax, relative in a window": {"position": Relative(TABLE), "neighbors": Causal() & Window(4)},
    "softmax, t5": {"position": T5Buckets(TABLE[:, :8], bidirectional=False, max_distance=16)},
    "softmax, scale a head": {"similarity": Softmax(scale=torch.rand(HEADS, dtype=torch.float64))},
    "argmax": {"similarity": heedful.Argmax()},
    "additive v2": {"similarity": Additive(weight=torch.randn(6, dtype=torch.float64))},
    "polynomial 2": {"similarity": Polynomial()},
    "polynomial 4": {"similarity": Polynomial(4)},
    "polynomial, alibi": {"similarity": Polynomial(), "position": Alibi()},
    "polynomial, rotary": {"similarity": Polynomial(), "position": Rotary()},
    "polynomial, relative": {"similarity": Polynomial(), "position": Relative(TABLE, clamp=True)},
    "polynomial in a window": {"similarity": Polynomial(), "neighbors": Causal() & Window(3)},
    "elu": {"similarity": EluKernel()},
    "elu, alibi": {"similarity": EluKernel(), "position": Alibi(torch.rand(HEADS, dtype=torch.float64))},
    "features": {"similarity": FeatureMap(exponential, positive=True)},
    "random features": {"similarity": RandomFeatures(9)},
    "random features, alibi": {"similarity": RandomFeatures(9), "position": Alibi(0.3)},
    "uniform": {"similarity": Uniform()},
    "uniform, alibi": {"similarity": Uniform(), "position": Alibi(0.3)},
}


def inputs(key_heads: int = HEADS, dtype=torch.float64, name: str = ""):
    q = torch.randn(2, HEADS, LENGTH, 6, dtype=dtype)
    k, v = torch.randn(2, 2, key_heads, LENGTH, 6, dtype=dtype)
    if (
        "polynomial" in name
    ):  # away from q·k + 1 = 0, where a sum of features cancels, whichever way they are turned
        q, k = q.abs() / 10, k.abs()
    return q, k, v


def pieces(seed: int):
    """Random cuts of the sequence, single tokens among them."""
    rng = random.Random(seed)
    cuts = sorted({0, LENGTH, *rng.sample(range(1, LENGTH), 6)})
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def fed(q, k, v, parts, **call):
    outs, state = [], None
    for part in parts:
        out, state = heedful.step(q[..., part, :], k[..., part, :], v[..., part, :], state, **call)
        outs.append(out)
    return torch.cat(outs, -2), state


@pytest.mark.parametrize("key_heads", [HEADS, 2, 1])
@pytest.mark.parametrize("name", CALLS)
def test_pieces_of_any_lengths_give_the_whole(name, key_heads, seed):
    q, k, v = inputs(key_heads, name=name)
    whole = heedful.attend(q, k, v, **{"neighbors": Causal(), **CALLS[name]}, strategy="reference")
    with torch.no_grad():
        for n in range(3):
            out, state = fed(q, k, v, pieces(seed + n), **CALLS[name])
            assert error(out, whole) <= 1e-9
            assert state.length == LENGTH
        one_by_one, _ = fed(q, k, v, [slice(n, n + 1) for n in range(LENGTH)], **CALLS[name])
        assert error(one_by_one, whole) <= 1e-9


@pytest.mark.parametrize("name", CALLS)
def test_pieces_give_the_whole_in_float32_too(name, seed):
    q, k, v = inputs(2, torch.float32, name)
    call = dict(CALLS[name])
    whole = heedful.attend(
        *(x.double() for x in (q, k, v)), **{"neighbors": Causal(), **call}, strategy="reference"
    )
    if name == "additive v2":
        call["similarity"] = Additive(weight=call["similarity"].weight.float())
    if "scale" in name:
        call["similarity"] = Softmax(scale=call["similarity"].scale.float())
    with torch.no_grad():
        out, _ = fed(q, k, v, pieces(seed), **call)
    assert out.dtype == torch.float32
    assert error(out, whole) <= 1e-4


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_a_polynomial_survives_growing_and_shrinking_keys(degree, dtype, tolerance, seed):
    q, k, v = inputs(dtype=dtype, name="polynomial")
    steps = torch.linspace(0, 1, LENGTH, dtype=dtype)[:, None]
    for exponent in (10 * steps - 5, 5 - 10 * steps):  # the keys' lengths go from 1e-5 to 1e5, and back
        scaled = k * 10**exponent
        whole = heedful.attend(
            q.double(),
            scaled.double(),
            v.double(),
            similarity=Polynomial(degree),
            neighbors=Causal(),
            strategy="reference",
        )
        out, _ = fed(q, scaled, v, pieces(seed), similarity=Polynomial(degree))
        assert error(out, whole) <= tolerance


def test_random_features_survive_keys_that_grow_stronger_and_weaker(seed):
    """What was summed is told anew what was taken from it, whenever a key has a larger exponent."""
    q, k, v = inputs(dtype=torch.float32, name="random features")
    similarity = RandomFeatures(9, scale=1.0)
    waves = torch.linspace(0, 6, LENGTH)[:, None].sin()
    single = [slice(n, n + 1) for n in range(LENGTH)]
    # Told at once, the first of keys as long as 12 hear only such as are nothing beside later ones.
    for scaled, parts in ((5 * waves * k, single), (5 * waves * k, pieces(seed)), (12 + k, single)):
        call = {"similarity": similarity, "neighbors": Causal(), "strategy": "reference"}
        whole = heedful.attend(*(x.double() for x in (q, scaled, v)), **call)
        out, state = fed(q, scaled, v, parts, similarity=similarity)
        assert error(out, whole) <= 1e-4
        assert state.total.abs().max() <= LENGTH * max(1, float(v.abs().max()))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "argmax"])
def test_gradients_pass_through_the_steps(name, seed):
    q, k, v = (x.requires_grad_() for x in inputs(2, name=name))
    weight = torch.randn(2, HEADS, LENGTH, 6, dtype=torch.float64)
    whole = heedful.attend(q, k, v, **{"neighbors": Causal(), **CALLS[name]}, strategy="reference")
    wanted = torch.autograd.grad(whole, (q, k, v), weight, allow_unused=True)
    out, _ = fed(q, k, v, pieces(seed), **CALLS[name])
    found = torch.autograd.grad(out, (q, k, v), weight, allow_unused=True)
    for got, expected in zip(found, wanted, strict=True):
        assert (got is None or not got.any()) if expected is None else error(got, expected) <= 1e-9


@pytest.mark.parametrize("wants", ["query", "key", "value", "table"])
def test_any_one_of_the_inputs_may_want_the_gradient(wants, seed):
    q, k, v = inputs()
    leaves = {"query": q, "key": k, "value": v, "table": TABLE.clone()}
    leaf = leaves[wants].requires_grad_()
    call = {"position": Relative(leaves["table"], clamp=True)}
    whole = heedful.attend(q, k, v, neighbors=Causal(), **call, strategy="reference")
    (wanted,) = torch.autograd.grad(whole.square().sum(), leaf)
    out, _ = fed(q, k, v, [slice(n, n + 1) for n in range(LENGTH)], **call)
    (found,) = torch.autograd.grad(out.square().sum(), leaf)
    assert error(found, wanted) <= 1e-9


@pytest.mark.parametrize(
    "name", ["polynomial 2", "polynomial 4", "elu", "elu, alibi", "uniform", "polynomial, rotary"]
)
def test_a_kernel_carries_a_state_of_constant_size(name):
    q, k, v = inputs()
    sizes = set()
    state = None
    for n in range(LENGTH):
        part = slice(n, n + 1)
        _, state = heedful.step(q[..., part, :], k[..., part, :], v[..., part, :], state, **CALLS[name])
        assert isinstance(state, ScanState)
        sizes.add(tuple(state.total.shape))
    assert len(sizes) == 1


def test_a_window_forgets_what_nobody_can_hear_any_more():
    q, k, v = inputs()
    state = None
    with torch.no_grad():
        for _ in range(20):
            _, state = heedful.step(q, k, v, state, neighbors=Causal() & Window(3))
    assert isinstance(state, CacheState)
    assert state.length == 20 * LENGTH
    assert state.key.shape[-2] <= 4 * (LENGTH + 3)


def test_appending_seldom_copies():
    q, k, v = inputs()
    buffers, state = set(), None
    with torch.no_grad():
        for n in range(LENGTH):
            part = slice(n, n + 1)
            _, state = heedful.step(q[..., part, :], k[..., part, :], v[..., part, :], state)
            buffers.add(state.key.data_ptr())
    assert len(buffers) <= 8


def test_the_callers_tensors_are_not_written_to():
    q, k, v = inputs()
    before = k.clone(), v.clone()
    with torch.no_grad():
        fed(q, k, v, pieces(3))
    assert torch.equal(k, before[0])
    assert torch.equal(v, before[1])


def test_what_the_caller_does_with_its_tensors_later_changes_nothing():
    """The next token may come in the same memory."""
    q, k, v = inputs()
    key, value, state, rows = torch.empty_like(k[..., :1, :]), torch.empty_like(v[..., :1, :]), None, []
    with torch.no_grad():
        for n in range(LENGTH):
            key.copy_(k[..., n : n + 1, :]), value.copy_(v[..., n : n + 1, :])
            out, state = heedful.step(q[..., n : n + 1, :], key, value, state)
            rows.append(out)
    assert error(torch.cat(rows, -2), heedful.attend(q, k, v, neighbors=Causal())) <= 1e-12


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["softmax", "softmax in a window", "polynomial 2"])
def test_branches_from_one_state_go_on_side_by_side(name, compiled, seed):
    """As a beam search does, or whoever takes guessed tokens back."""
    q, k, v = inputs(name=name)
    branches = [(k, v), (k.roll(1, -2), v.roll(2, -2)), (-k, v.flip(-2))]
    step = torch.compile(heedful.step, backend="eager") if compiled else heedful.step
    whole = {"neighbors": Causal(), **CALLS[name]}
    with torch.no_grad():
        _, root = fed(q, k, v, [slice(0, 5), slice(5, 6)], **CALLS[name])
        states, out = [root] * 3, [[] for _ in branches]
        for n in range(6, 12):
            new = slice(n, n + 1)
            for place, (keys, values) in enumerate(branches):
                row, states[place] = step(
                    q[..., new, :], keys[..., new, :], values[..., new, :], states[place], **CALLS[name]
                )
                out[place].append(row)
        for rows, (keys, values) in zip(out, branches, strict=True):
            heard = (torch.cat([x[..., :6, :], y[..., 6:12, :]], -2) for x, y in ((k, keys), (v, values)))
            wanted = heedful.attend(q[..., :12, :], *heard, **whole, strategy="reference")
            assert error(torch.cat(rows, -2), wanted[..., 6:, :]) <= 1e-9


@pytest.mark.parametrize("name", ["elu", "polynomial 2", "random features", "softmax"])
def test_autocast_rounds_tokens_and_not_what_was_heard(name, seed):
    """A total in half precision stops growing after some hundred tokens."""
    q, k, v = torch.rand(3, 1, 2, 800, 4)
    with torch.autocast("cpu", torch.bfloat16):
        whole = heedful.attend(q, k, v, neighbors=Causal(), **CALLS[name])
        out, _ = fed(q, k, v, [slice(n, n + 1) for n in range(800)], **CALLS[name])
    assert out.dtype == whole.dtype == torch.bfloat16
    assert error(out[..., 400:, :].double(), whole[..., 400:, :].double()) <= 1e-2


@pytest.mark.parametrize("name", ["softmax", "softmax in a window", "polynomial 2", "elu, alibi"])
def test_stepping_again_from_an_old_state_gives_its_own_continuation(name, seed):
    q, k, v = inputs(name=name)
    other = k.roll(1, -2)
    with torch.no_grad():
        _, root = fed(q, k, v, [slice(0, 5), slice(5, 6), slice(6, 9)], **CALLS[name])
        new = slice(9, 11)
        for keys in (k, other, k):
            whole = torch.cat([k[..., :9, :], keys[..., new, :]], -2)
            wanted = heedful.attend(
                q[..., :11, :],
                whole,
                v[..., :11, :],
                **{"neighbors": Causal(), **CALLS[name]},
                strategy="reference",
            )
            out, _ = heedful.step(q[..., new, :], keys[..., new, :], v[..., new, :], root, **CALLS[name])
            assert error(out, wanted[..., new, :]) <= 1e-9


def test_while_gradients_are_wanted_branches_do_not_share_memory():
    q, k, v = (x.requires_grad_() for x in inputs())
    _, root = heedful.step(q, k, v)
    first, left = heedful.step(q, k, v, root)
    heedful.step(q, -k, v, root)
    again, _ = heedful.step(q, k, v, root)
    assert torch.equal(first, again)
    assert torch.equal(left.key[..., LENGTH:, :], k)


@pytest.mark.parametrize("name", ["softmax", "polynomial 2"])
def test_an_empty_piece_changes_nothing(name):
    q, k, v = inputs()
    with torch.no_grad():
        _out, state = heedful.step(q, k, v, **CALLS[name])
        nothing = slice(0, 0)
        empty, after = heedful.step(
            q[..., nothing, :], k[..., nothing, :], v[..., nothing, :], state, **CALLS[name]
        )
        assert empty.shape[-2] == 0
        assert after.length == LENGTH
        wanted, _ = heedful.step(q, k, v, state, **CALLS[name])
        found, _ = heedful.step(q, k, v, after, **CALLS[name])
    assert error(found, wanted) <= 1e-12


def test_nothing_new_before_the_backward_pass():
    q, k, v = inputs()
    q.requires_grad_()
    parts = [slice(0, 1), slice(1, 1), slice(1, 2), slice(2, 2), slice(2, LENGTH)]
    out, _ = fed(q, k, v, parts)
    wanted = torch.autograd.grad(heedful.attend(q, k, v, neighbors=Causal()).square().sum(), q)
    assert error(torch.autograd.grad(out.square().sum(), q)[0], wanted[0]) <= 1e-9


@pytest.mark.parametrize("name", ["softmax", "elu"])
def test_a_state_of_something_else_is_refused_in_words(name):
    q, k, v = inputs()
    _, state = heedful.step(q, k, v, **CALLS[name])
    others = [
        [x.repeat(3, 1, 1, 1) for x in (q, k, v)],
        [x.float() for x in (q, k, v)],
        [x[:, :1] for x in (q, k, v)],
        [q, k, v[..., :-1]],
    ]
    for new in others:
        with pytest.raises(ValueError, match=r"step\(\): .* start with state=None"):
            heedful.step(*new, state, **CALLS[name])


def test_what_cannot_be_decoded_says_why():
    q, k, v = inputs()
    for neighbors in (Everyone(), Window(3), heedful.Global([0]) | Causal()):
        with pytest.raises(ValueError, match="looks ahead or depends on more"):
            heedful.step(q, k, v, neighbors=neighbors)
    with pytest.raises(ValueError, match="takes"):
        heedful.step(q[0, 0], k[0, 0], v[0, 0])
    with pytest.raises(ValueError, match="22 queries for 23 keys"):
        heedful.step(q[..., 1:, :], k, v)
    _, scan = heedful.step(q, k, v, similarity=EluKernel())
    _, cache = heedful.step(q, k, v)
    with pytest.raises(TypeError, match="carries a CacheState, got ScanState"):
        heedful.step(q, k, v, scan)
    with pytest.raises(TypeError, match="carries a ScanState, got CacheState"):
        heedful.step(q, k, v, cache, similarity=EluKernel())
    with pytest.raises(ValueError, match="distances up to"):
        heedful.step(q, k, v, position=Relative(TABLE))
