"""What distance does to a score: layout of the tables, silence, heads, gradients, errors."""

from __future__ import annotations

import math

import pytest
import torch

import heedful
from heedful import Alibi, Causal, Graph, Relative, Rotary, T5Buckets, Uniform, Window
from heedful.attention.position import toeplitz_block

from . import naive
from .cases import POSITIONS, Shape, rotary

TABLES = [name for name in POSITIONS if name != "none" and not rotary(name)]


@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 7), (7, 1), (6, 6), (4, 9), (9, 4), (40, 40)])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_holds_every_offset_that_occurs(name, queries, keys, seed):
    shape = Shape(heads=3, queries=queries, keys=keys, seed=seed)
    piece = POSITIONS[name](shape)
    position = piece.make(**piece.tensors)
    table = position.table(queries, keys, 3, torch.zeros(1, dtype=torch.float64))
    assert table.shape[-1] == queries + keys - 1
    for head in range(3):
        row = table[head if len(table) > 1 else 0]
        wanted = [naive.distance(position, offset, head, 3) for offset in range(1 - queries, keys)]
        torch.testing.assert_close(row, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_entry_L_plus_i_minus_j_is_added():
    x, v = torch.zeros(4, 2), torch.eye(4)
    table = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])  # L = 3
    out = heedful.attend(x, x, v, position=Relative(table))
    bias = torch.tensor([[table[3 + i - j] for j in range(4)] for i in range(4)])
    torch.testing.assert_close(out, bias.softmax(-1))


def test_a_clamped_table_repeats_its_ends():
    x, v = torch.zeros(6, 2), torch.eye(6)
    out = heedful.attend(x, x, v, position=Relative(torch.tensor([1.0, 2.0, 3.0]), clamp=True))
    bias = torch.tensor([[2.0 + max(-1, min(1, i - j)) for j in range(6)] for i in range(6)])
    torch.testing.assert_close(out, bias.softmax(-1))


@pytest.mark.parametrize("strategy", ["reference", "fused", "tiled", "banded", "sparse", "toeplitz"])
def test_minus_infinity_silences_without_a_nan(strategy):
    table = torch.tensor([-math.inf, 0.0, -math.inf, 0.5, -math.inf], dtype=torch.float64, requires_grad=True)
    x = torch.randn(1, 30, 2, dtype=torch.float64, requires_grad=True)
    similarity = heedful.EluKernel() if strategy == "toeplitz" else heedful.Softmax()
    if strategy == "sparse":
        similarity = heedful.Polynomial()
    v = torch.eye(30, dtype=torch.float64)[None]
    call = {
        "similarity": similarity,
        "neighbors": Window(2),
        "position": Relative(table),
        "strategy": strategy,
    }
    out = heedful.attend(x, x, v, **call)
    offset = torch.arange(30)[:, None] - torch.arange(30)
    heard = (offset == -1) | (offset == 1)
    assert not out[0][~heard].abs().gt(1e-15).any()
    assert (out[0][heard] > 0).all()
    gradients = torch.autograd.grad(out.square().sum(), (table, x))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0][[0, 2, 4]].abs().max() <= 1e-15


@pytest.mark.parametrize("strategy", ["reference", "fused", "tiled", "sparse"])
def test_a_table_of_silence_gives_zeros(strategy):
    table = torch.full((9,), -math.inf, requires_grad=True)
    x = torch.randn(2, 5, 2, requires_grad=True)
    out = heedful.attend(x, x, x, position=Relative(table), strategy=strategy)
    assert torch.equal(out, torch.zeros_like(out))
    for gradient in torch.autograd.grad(out.sum(), (table, x)):
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_each_head_has_its_row():
    x, v = torch.zeros(2, 3, 2), torch.eye(3).expand(2, 3, 3)
    table = torch.stack([torch.zeros(5), torch.tensor([9.0, 9.0, 0.0, 0.0, 0.0])])
    out = heedful.attend(x, x, v, position=Relative(table))
    torch.testing.assert_close(out[0], torch.full((3, 3), 1 / 3))
    assert out[1, 0, 1:].sum() > 0.99


@pytest.mark.parametrize(
    "name", [name for name in TABLES if POSITIONS[name](Shape()).tensors and "silent" not in name]
)
def test_gradients_reach_the_parameters(name, seed):
    shape = Shape(heads=2, queries=5, keys=7, seed=seed)
    piece = POSITIONS[name](shape)
    q, k, v = (torch.randn(2, n, 3, dtype=torch.float64) for n in (5, 7, 7))

    def run(parameter):
        position = piece.make(**dict.fromkeys(piece.tensors, parameter))
        return heedful.attend(q, k, v, position=position, strategy="reference")

    (parameter,) = piece.tensors.values()
    assert torch.autograd.gradcheck(run, (parameter.clone().requires_grad_(),))


def test_alibi_has_the_published_slopes():
    slopes = -Alibi().table(1, 2, 8, torch.zeros(1))[:, 1]
    torch.testing.assert_close(slopes, torch.tensor([2.0**-h for h in range(1, 9)]))
    x = torch.randn(2, 4, 2)
    given = heedful.attend(x, x, x, position=Alibi(torch.tensor([2.0**-4, 2.0**-8])))
    torch.testing.assert_close(heedful.attend(x, x, x, position=Alibi()), given)


def test_t5_buckets_are_those_of_transformers():
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="parity with Hugging Face's T5")
    offset = torch.arange(-300, 301)
    for bidirectional in (True, False):
        for buckets, far in ((32, 128), (32, 64), (16, 100), (8, 20)):
            ours = T5Buckets(torch.zeros(buckets), bidirectional=bidirectional, max_distance=far).bucket(
                offset
            )
            theirs = t5.T5Attention._relative_position_bucket(-offset, bidirectional, buckets, far)
            assert torch.equal(ours, theirs), (bidirectional, buckets, far, offset[ours != theirs])


@pytest.mark.parametrize("buckets, far", [(32, 128), (16, 100), (8, 20), (4, 16), (6, 7)])
def test_t5_buckets_cover_all_distances_in_order(buckets, far):
    position = T5Buckets(torch.zeros(buckets), bidirectional=False, max_distance=far)
    found = position.bucket(torch.arange(2 * far))
    assert (found.diff() >= 0).all()
    assert found[0] == 0
    assert found[far] == found[-1] == buckets - 1
    assert (position.bucket(-torch.arange(9)) == 0).all()


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_depends_on_the_difference_of_positions_only(interleaved):
    turn = Rotary(interleaved=interleaved)
    q, k = torch.randn(2, 1, 8, dtype=torch.float64)
    scores = [[float((turn.rotate(q, i) * turn.rotate(k, j)).sum()) for j in (0, 5, 40)] for i in (3, 8, 43)]
    for n in range(3):
        assert scores[n][n] == pytest.approx(scores[0][0], rel=1e-12)
    assert abs(scores[0][1] - scores[0][0]) > 1e-6


def test_rotary_is_multiplication_by_complex_numbers():
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    rate = 10000.0 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    turned = torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.exp(
        1j * torch.arange(4, 11)[:, None] * rate
    )
    torch.testing.assert_close(
        Rotary().rotate(x, 4), torch.view_as_real(turned).flatten(-2), rtol=1e-13, atol=1e-13
    )


def test_rotary_pairs_halves_as_hugging_face_does():
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    order = [0, 3, 1, 4, 2, 5]
    halves = Rotary(interleaved=False).rotate(x, 2)
    assert torch.equal(halves[..., order], Rotary().rotate(x[..., order], 2))
    angle = (
        torch.arange(2, 9, dtype=torch.float64)[:, None]
        * 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    ).repeat(1, 2)
    rotated_half = torch.cat([-x[..., 3:], x[..., :3]], -1)
    torch.testing.assert_close(halves, x * angle.cos() + rotated_half * angle.sin(), rtol=1e-13, atol=1e-13)


def test_rotary_leaves_the_other_coordinates_alone():
    x = torch.randn(7, 6)
    assert torch.equal(Rotary(dims=2).rotate(x, 3)[:, 2:], x[:, 2:])


def test_rotary_keeps_lengths():
    x = torch.randn(3, 50, 8, dtype=torch.float64)
    torch.testing.assert_close(Rotary().rotate(x, 7).norm(dim=-1), x.norm(dim=-1), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    "rows, columns",
    [((0, 5), (0, 7)), ((2, 3), (0, 7)), ((1, 5), (3, 6)), ((0, 1), (6, 7)), ((4, 5), (2, 2))],
)
def test_a_toeplitz_block_is_the_table_by_offset(rows, columns):
    queries, keys = 5, 7
    table = torch.randn(2, queries + keys - 1, requires_grad=True)
    block = toeplitz_block(table, rows, columns, keys)
    i, j = torch.arange(*rows)[:, None] + keys - queries, torch.arange(*columns)
    assert torch.equal(block, table[:, queries - 1 + i - j])
    (gradient,) = torch.autograd.grad(block.sum(), table)
    assert gradient.sum() == block.numel()


@pytest.mark.parametrize(
    "make, kind, says",
    [
        (lambda: Relative(torch.zeros(4)), ValueError, "must be odd"),
        (lambda: Relative(torch.zeros(1, 2, 3)), ValueError, "must be odd|takes"),
        (lambda: Relative(torch.zeros(3, dtype=torch.long)), TypeError, "floating-point"),
        (lambda: Relative([0.0]), TypeError, "floating-point"),
        (lambda: Relative(torch.tensor([0.0, math.nan, 0.0])), ValueError, r"nan at \[1\]"),
        (lambda: Relative(torch.tensor([0.0, math.inf, 0.0])), ValueError, r"inf at \[1\]"),
        (lambda: Alibi(torch.zeros(2, 2)), ValueError, "one a head"),
        (lambda: Alibi(math.nan), ValueError, "finite"),
        (lambda: T5Buckets(torch.zeros(2)), ValueError, "at least 2 buckets"),
        (lambda: T5Buckets(torch.zeros(32), max_distance=8), ValueError, "max_distance above 8"),
        (lambda: T5Buckets(torch.zeros(1, 1, 8)), ValueError, "takes"),
        (lambda: Rotary(0.0), ValueError, "positive"),
        (lambda: Rotary(dims=3), ValueError, "even"),
    ],
)
def test_a_position_that_makes_no_sense_says_so(make, kind, says):
    with pytest.raises(kind, match=says):
        make()


@pytest.mark.parametrize(
    "position, says",
    [
        (Relative(torch.zeros(5)), "reach distance 2, but distances up to 4 occur. Give 9 entries"),
        (Relative(torch.zeros(3, 9)), "3 rows for 2 heads"),
        (Alibi(torch.zeros(3)), "3 rows for 2 heads"),
        (T5Buckets(torch.zeros(3, 8)), "3 rows for 2 heads"),
        (Rotary(), "use an even number"),
        (Rotary(dims=4), "have 3"),
    ],
)
def test_a_position_that_does_not_fit_the_call_says_so(position, says):
    x = torch.randn(2, 5, 3)
    for _ in range(2):
        with pytest.raises(ValueError, match=says):
            heedful.attend(x, x, x, position=position)


def test_a_table_needs_to_reach_only_as_far_as_the_neighbors():
    x = torch.randn(2, 9, 3)
    heedful.attend(x, x, x, position=Relative(torch.zeros(5)), neighbors=Window(2))
    with pytest.raises(ValueError, match="distances up to 3"):
        heedful.attend(x, x, x, position=Relative(torch.zeros(5)), neighbors=Causal() & Window(3))
    with pytest.raises(ValueError, match="distances up to 8"):
        heedful.attend(x[:, :1], x, x, position=Relative(torch.zeros(15)))


def test_a_graph_that_reaches_too_far_is_an_error_even_after_one_that_does_not():
    x = torch.randn(1, 9, 3)
    near, far = Graph.from_edges([0, 1], [1, 2], nodes=9), Graph.from_edges([0, 1], [8, 7], nodes=9)
    call = {"similarity": Uniform(), "position": Relative(torch.zeros(3))}
    heedful.attend(x, x, x, neighbors=near, **call)
    with pytest.raises(ValueError, match="distances up to 8"):
        heedful.attend(x, x, x, neighbors=far, **call)
