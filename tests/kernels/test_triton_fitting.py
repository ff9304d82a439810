"""GPUs with little shared memory: kernels that do not fit are launched with less, and find the same."""

import pytest
import torch

from heedful import Causal, EluKernel, Polynomial, attend
from heedful.kernels import feature_maps_triton, fitting, quadratic_triton, sparse_operators

errors = pytest.importorskip("triton.runtime.errors")


class Cramped:
    """A kernel that only fits in blocks of `most` positions, with one load under way."""

    def __init__(self, kernel, most):
        self.kernel, self.most, self.refused = kernel, most, 0

    def __getitem__(self, grid):
        def run(*tensors, BLOCK, num_stages, **options):
            if self.most < BLOCK or num_stages > 1:
                self.refused += 1
                raise errors.OutOfResources(2, 1, "shared memory")
            return self.kernel[grid](*tensors, BLOCK=BLOCK, num_stages=num_stages, **options)

        return run


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    monkeypatch.setattr(fitting, "_FOUND", {})
    return device


@pytest.mark.parametrize("similarity", [EluKernel(), Polynomial(2)], ids=str)
def test_less_is_tried_and_remembered(seed, similarity, device, monkeypatch):
    module = feature_maps_triton if isinstance(similarity, EluKernel) else quadratic_triton
    cramped = {name: Cramped(getattr(module, name), 16) for name in ("moments", "apply", "pull")}
    for name, kernel in cramped.items():
        monkeypatch.setattr(module, name, kernel)
    x = torch.randn(1, 1, 150, 8, device=device, requires_grad=True)
    found, refused = {}, []
    for way in ("scan", "scan", "reference"):
        out = attend(x, x, x, similarity=similarity, neighbors=Causal(), strategy=way)
        # The first hear so few that their weights may all be near 0, where rounding has no bound.
        (gradient,) = torch.autograd.grad(out[..., 16:, :].square().sum(), x)
        found[way] = out, gradient
        refused.append({name: kernel.refused for name, kernel in cramped.items()})
    assert min(refused[0].values()) >= 1 and refused[1] == refused[0]
    for a, b in zip(*found.values(), strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


def test_what_never_fits_says_so(device, monkeypatch):
    monkeypatch.setattr(feature_maps_triton, "moments", Cramped(feature_maps_triton.moments, 8))
    x = torch.randn(1, 1, 40, 8, device=device)
    with pytest.raises(errors.OutOfResources, match="shared memory"):
        attend(x, x, x, similarity=EluKernel(), strategy="factored")
