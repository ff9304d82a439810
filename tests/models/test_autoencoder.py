"""Autoencoder: its objective to the factor, its corruptions, and the subspace that a linear one finds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful.models import Autoencoder

double = torch.float64


def test_reads_and_writes(seed):
    model, x = Autoencoder(6, [5, 2]).to(double), torch.randn(4, 6, dtype=double)
    one, two = model.encoder
    code = two(F.relu(one(x)))
    torch.testing.assert_close(model.encode(x), code)
    one, two = model.decoder
    torch.testing.assert_close(model(x), two(F.relu(one(code))))


def test_sizes():
    """784 → 256 → 64 → 256 → 784 with biases; tied, the second half has only its biases."""
    weights = 784 * 256 + 256 * 64
    assert Autoencoder(784, [256, 64]).parameter_count == 2 * weights + 256 + 64 + 256 + 784
    assert Autoencoder(784, [256, 64], tied=True).parameter_count == weights + 256 + 64 + 256 + 784
    assert Autoencoder(784, [256, 64], tied=True, bias=False).parameter_count == weights
    assert Autoencoder(784, [256, 64], bias=False).parameter_count == 2 * weights


def test_loss_is_summed_over_features_and_averaged_over_samples(seed):
    model, x = Autoencoder(6, [2]).to(double), torch.randn(4, 6, dtype=double)
    torch.testing.assert_close(model.loss(x), ((x - model(x)) ** 2).sum() / 4)
    torch.testing.assert_close(model.loss(x), F.mse_loss(model(x), x) * 6)


@pytest.mark.parametrize("tied", [False, True])
def test_penalty_is_of_all_matrices_and_no_bias(tied, seed):
    model = Autoencoder(6, [5, 2], decay=0.3, tied=tied).to(double)
    x = torch.randn(4, 6, dtype=double)
    squares = sum(p.square().sum() for p in model.parameters() if p.dim() == 2)
    torch.testing.assert_close(model.penalty(), 0.3 * squares * (2 if tied else 1))
    plain = ((x - model(x)) ** 2).sum() / 4
    torch.testing.assert_close(model.loss(x), plain + model.penalty())


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "linear"])
def test_tied_is_the_transpose(activation, seed):
    model = Autoencoder(6, [5, 2], tied=True, activation=activation).to(double)
    code = torch.randn(4, 2, dtype=double)
    act = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "linear": lambda x: x}[
        activation
    ]
    hidden = act(code @ model.encoder[1].weight + model.decoder[0])
    torch.testing.assert_close(model.decode(code), hidden @ model.encoder[0].weight + model.decoder[1])


def test_corruptions(seed):
    x = torch.rand(400, 100) + 1  # no zeros of its own
    n = x.numel()
    assert Autoencoder(100, [2]).corrupt(x) is x
    noise = Autoencoder(100, [2], kind="denoising").corrupt(x) - x
    assert abs(noise.mean().item()) < 5 * 0.5 / math.sqrt(n)
    assert noise.std().item() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2 * n))
    masked = Autoencoder(100, [2], kind="masked").corrupt(x)
    gone = masked == 0
    assert torch.equal(masked[~gone], x[~gone])
    assert gone.double().mean().item() == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / n))


@pytest.mark.parametrize("kind", ["denoising", "masked"])
def test_the_target_is_the_clean_input(kind, seed):
    """In training a corrupted input is compared with the clean one; in evaluation nothing is corrupted."""
    model, x = Autoencoder(6, [2], kind=kind).to(double), torch.randn(4, 6, dtype=double)
    torch.manual_seed(seed)
    spoiled = model.corrupt(x)
    torch.manual_seed(seed)
    torch.testing.assert_close(model.train().loss(x), ((x - model(spoiled)) ** 2).sum() / 4)
    torch.testing.assert_close(model.eval().loss(x), ((x - model(x)) ** 2).sum() / 4)


def test_images_keep_their_shape(seed):
    model, x = Autoencoder(12, [3]), torch.randn(5, 1, 4, 3)
    assert model(x).shape == x.shape and model.encode(x).shape == (5, 3)
    torch.testing.assert_close(model(x).flatten(1), model(x.flatten(1)))
    torch.testing.assert_close(model.loss(x), model.loss(x.flatten(1)))


def fit(model, x, steps=400):
    """To the bottom, by a second-order method: the whole batch at once."""
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=steps,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-10,
        tolerance_change=0,
    )

    def closure():
        optimizer.zero_grad()
        loss = model.loss(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    return model


def spectrum(x):
    """Eigenvalues of XXᵀ/n, from the largest, and their vectors as rows."""
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    return values.flip(0), vectors.flip(1).T


def test_a_linear_one_finds_the_principal_subspace(seed):
    """Not the components themselves: any basis of their span does as well."""
    scales = torch.tensor([3.0, 2.5, 2.0, 0.6, 0.4, 0.2], dtype=double)
    x = torch.randn(200, 6, dtype=double) * scales @ torch.linalg.qr(torch.randn(6, 6, dtype=double))[0]
    values, vectors = spectrum(x)
    model = fit(Autoencoder(6, [3], activation="linear", bias=False).to(double), x)
    assert model.loss(x).item() == pytest.approx(values[3:].sum().item(), rel=1e-6)
    both = model.decoder[0].weight @ model.encoder[0].weight
    torch.testing.assert_close(both, vectors[:3].T @ vectors[:3], rtol=0, atol=1e-3)


def test_decay_shrinks_singular_values_as_predicted(seed):
    """√(1 − λ/σ_i²) for the decoder, σ_i² the eigenvalues of XXᵀ/n."""
    scales = torch.tensor([3.0, 2.5, 2.0, 0.6, 0.4, 0.2], dtype=double)
    x = torch.randn(200, 6, dtype=double) * scales
    values, _ = spectrum(x)
    model = fit(Autoencoder(6, [3], decay=0.3, bias=False).to(double), x)
    found = torch.linalg.svdvals(model.decoder[0].weight.detach())
    torch.testing.assert_close(found, (1 - 0.3 / values[:3]).sqrt(), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"layers": []}, "layers=0"),
        ({"layers": [4, 0]}, "layers=0"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
        ({"kind": "noisy"}, "'vanilla', 'denoising', 'masked'"),
        ({"mask": 1.0}, "mask=1.0"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"decay": -1.0}, "decay=-1.0"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        Autoencoder(**{"features": 6, "layers": [2], **options})


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"takes \(N, 6\)"):
        Autoencoder(6, [2])(torch.zeros(4, 5))


def test_layers_begin_as_torchs(seed):
    """Linear layers as torch draws them, in order of use."""
    torch.manual_seed(seed)
    model = Autoencoder(6, [5, 2])
    torch.manual_seed(seed)
    for layer, (a, b) in zip([*model.encoder, *model.decoder], [(6, 5), (5, 2), (2, 5), (5, 6)], strict=True):
        assert torch.equal(layer.weight, nn.Linear(a, b).weight)
