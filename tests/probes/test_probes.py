"""Probes against formulas, other libraries, and cases whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

from heedful import Graph, probes


def clouds(seed, n=200, classes=3, features=6, spread=1.5):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, features, generator=generator) * 1.2
    labels = torch.randint(classes, (n,), generator=generator)
    return centres[labels] + spread * torch.randn(n, features, generator=generator), labels


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_linear_probe_torch_and_sklearn_agree(penalty, seed):
    x, y = clouds(seed)
    held, truth = clouds(seed)[0] + 0.1, y
    found = [
        probes.linear_probe(x, y, held, truth, penalty=penalty, method=method)
        for method in ("torch", "sklearn")
    ]
    assert abs(found[0] - found[1]) <= 1 / len(y)  # one borderline sample may fall either way
    assert found[0] > 0.5


def test_linear_probe_reads_what_is_there(seed):
    y = torch.arange(100) % 4
    x = nn.functional.one_hot(y, 4).float()
    assert probes.linear_probe(x, y, x, y) == 1.0
    noise = torch.randn(400, 4)
    assert probes.linear_probe(noise[:200], torch.arange(200) % 4, noise[200:], torch.arange(200) % 4) < 0.45


def test_linear_probe_needs_rows():
    x = torch.randn(4, 2, 2)
    with pytest.raises(ValueError, match="Flatten them"):
        probes.linear_probe(x, torch.zeros(4), x, torch.zeros(4))
    with pytest.raises(ValueError, match="all labels are the same"):
        probes.linear_probe(x[:, 0], torch.zeros(4), x[:, 0], torch.zeros(4))


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("size", [4, 5])
def test_quarter_turns_only_move_pixels(turns, size, seed):
    x = torch.randn(2, 3, size, size)
    assert torch.equal(probes.rotate(x, 90 * turns), torch.rot90(x, turns, (-2, -1)))


@pytest.mark.parametrize("angle", [17.0, 30.0, 200.0, 333.0])
def test_rotation_is_scipys(angle, seed):
    """Inside the circle that never leaves the frame: scipy fills the outermost half pixel, torch does not."""
    x = np.random.default_rng(seed).random((24, 24))
    ours = probes.rotate(torch.from_numpy(x)[None, None], angle)[0, 0].numpy()
    theirs = ndimage.rotate(x, angle, reshape=False, order=0)
    y, x = np.mgrid[:24, :24] - 11.5
    assert np.abs(ours - theirs)[np.hypot(x, y) < 11].max() < 1e-9


def test_each_image_its_own_angle(seed):
    x = torch.randn(3, 1, 6, 6)
    found = probes.rotate(x, torch.tensor([0.0, 90.0, 180.0]))
    for n, turns in enumerate((0, 1, 2)):
        assert torch.equal(found[n], torch.rot90(x[n], turns, (-2, -1)))
    assert probes.rotate((x * 100).to(torch.uint8), 90).dtype == torch.uint8


def test_shift_moves_and_loses(seed):
    x = torch.randn(2, 1, 5, 6)
    for down in range(-6, 7):
        for right in range(-7, 8):
            padded = nn.functional.pad(x, (10, 10, 10, 10))
            expected = padded[..., 10 - down : 15 - down, 10 - right : 16 - right]
            assert torch.equal(probes.shift(x, down, right), expected)


class _LeftHalf(nn.Module):
    """Class 1 where the left half is brighter than the right."""

    def forward(self, x):
        half = x.shape[-1] // 2
        left, right = x[..., :half].sum((1, 2, 3)), x[..., half:].sum((1, 2, 3))
        return torch.stack([right, left], 1)


def test_curves_of_a_model_whose_answer_is_known():
    x = torch.zeros(4, 1, 6, 6)
    x[:, :, :, 0] = 1.0
    model, labels = _LeftHalf().train(), torch.ones(4, dtype=torch.long)
    curve = probes.rotation_curve(model, x, labels, degrees=(0, 180, 360))
    assert curve == {0: 1.0, 180: 0.0, 360: 1.0}
    assert probes.shift_map(model, x, labels, right=(0, 2, 3)) == {(0, 0): 1.0, (0, 2): 1.0, (0, 3): 0.0}
    assert model.training


def test_receptive_field_of_convolutions():
    """Three 3 × 3 convolutions hear 7 × 7; a stride of two widens it."""
    plain = nn.Sequential(*[nn.Conv2d(2, 2, 3, padding=1) for _ in range(3)]).double()
    field = probes.receptive_field(plain, torch.randn(1, 2, 15, 15).double(), at=(7, 7))
    heard = (field > 0).nonzero()
    assert heard.min(0).values.tolist() == [4, 4] and heard.max(0).values.tolist() == [10, 10]
    strided = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2), nn.Conv2d(3, 1, 3)).double()
    field = probes.receptive_field(strided, torch.randn(1, 1, 15, 15).double(), at=(0, 0))
    assert (field > 0).nonzero().max(0).values.tolist() == [6, 6]
    with pytest.raises(ValueError, match="one index for each dimension"):
        probes.receptive_field(plain, torch.randn(1, 2, 9, 9).double(), at=(1,))


def test_receptive_field_of_a_classifier():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    assert (probes.receptive_field(model, torch.randn(2, 3, 2, 2), at=()) > 0).all()


def test_gradient_norms_are_autograds(seed):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    model.unused = nn.Linear(2, 2)
    x = torch.randn(5, 4)
    found = probes.gradient_norms(model, lambda: model[:3](x).square().mean())
    model[:3](x).square().mean().backward()
    for name, parameter in model.named_parameters():
        expected = 0.0 if parameter.grad is None else float(parameter.grad.norm())
        assert found[name] == pytest.approx(expected, rel=1e-5)


def test_state_gradients_shrink_by_the_recurrence():
    """h_t = ½ h_{t−1}: each step back halves the gradient."""
    h = [torch.ones(3, requires_grad=True)]
    for _ in range(4):
        h.append(0.5 * h[-1])
    norms = probes.state_gradient_norms(h[-1].sum(), h)
    assert norms == pytest.approx([math.sqrt(3) * 0.5**k for k in (4, 3, 2, 1, 0)])


def test_jacobian_spectrum_is_the_svd(seed):
    w = torch.randn(4, 6, dtype=torch.float64)
    found = probes.jacobian_spectrum(lambda x: x @ w.T, torch.randn(6, dtype=torch.float64))
    torch.testing.assert_close(found, torch.linalg.svdvals(w))
    x = torch.randn(2, 3, dtype=torch.float64)
    found = probes.jacobian_spectrum(torch.tanh, x)
    expected = (1 - torch.tanh(x) ** 2).flatten().sort(descending=True).values
    torch.testing.assert_close(found, expected)


def test_attention_distance_by_a_loop(seed):
    weights = torch.rand(2, 4, 4, dtype=torch.float64).softmax(-1)
    places = torch.randn(4, 2, dtype=torch.float64)
    expected = torch.zeros(2, dtype=torch.float64)
    for h in range(2):
        for i in range(4):
            for j in range(4):
                expected[h] += weights[h, i, j] * (places[i] - places[j]).norm() / 4
    torch.testing.assert_close(probes.attention_distance(weights, places), expected)
    last = probes.attention_distance(torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))  # listeners at 1 and 2
    assert last == pytest.approx(1.5)
    silent = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert probes.attention_distance(silent) == 1.0


def test_rollout_multiplies(seed):
    layers = [torch.rand(3, 5, 5, dtype=torch.float64).softmax(-1) for _ in range(3)]
    expected = torch.eye(5, dtype=torch.float64)
    for layer in layers:
        expected = (0.5 * torch.eye(5) + 0.5 * layer.mean(0)) @ expected
    found = probes.attention_rollout(layers)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(probes.attention_rollout(layers[:1], residual=0.0), layers[0].mean(0))
    with pytest.raises(ValueError, match="not square"):
        probes.attention_rollout([torch.rand(1, 2, 3)])


def test_dirichlet_energy_is_the_quadratic_form(seed):
    graph = Graph.from_dense((torch.rand(8, 8) < 0.4).triu(1)).undirected()
    x = torch.randn(8, 3, dtype=torch.float64)
    laplacian = graph.laplacian("combinatorial")
    laplacian = laplacian.to_dense() if hasattr(laplacian, "to_dense") else laplacian
    plain = probes.dirichlet_energy(graph, x, normalized=False)
    torch.testing.assert_close(plain, torch.trace(x.T @ laplacian.double() @ x))
    constant = (1 + graph.degree()).double().sqrt().unsqueeze(1)
    assert probes.dirichlet_energy(graph, constant) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="x has 3 rows"):
        probes.dirichlet_energy(graph, x[:3])
