"""Norms: the formula, torch's kernel and torch's layers agree in values, gradients and running averages."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heedful.nn import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    moments_over,
    normalize_over,
)

SHAPE = (5, 6, 4, 3)

# ours by fused, torch's, shape of the input
PAIRS = {
    "batch2d": (lambda fused: BatchNorm(6, fused=fused), lambda: nn.BatchNorm2d(6), SHAPE),
    "batch1d": (lambda fused: BatchNorm(6, fused=fused), lambda: nn.BatchNorm1d(6), (7, 6)),
    "batch1d length": (lambda fused: BatchNorm(6, fused=fused), lambda: nn.BatchNorm1d(6), (4, 6, 5)),
    "batch3d": (lambda fused: BatchNorm(6, fused=fused), lambda: nn.BatchNorm3d(6), (3, 6, 2, 3, 2)),
    "batch average": (
        lambda fused: BatchNorm(6, momentum=None, fused=fused),
        lambda: nn.BatchNorm2d(6, momentum=None),
        SHAPE,
    ),
    "batch bare": (
        lambda fused: BatchNorm(6, affine=False, momentum=0.3, eps=1e-2, fused=fused),
        lambda: nn.BatchNorm2d(6, affine=False, momentum=0.3, eps=1e-2),
        SHAPE,
    ),
    "batch untracked": (
        lambda fused: BatchNorm(6, track_running_stats=False, fused=fused),
        lambda: nn.BatchNorm2d(6, track_running_stats=False),
        SHAPE,
    ),
    "instance": (lambda fused: InstanceNorm(6, fused=fused), lambda: nn.InstanceNorm2d(6), SHAPE),
    "instance affine": (
        lambda fused: InstanceNorm(6, affine=True, fused=fused),
        lambda: nn.InstanceNorm1d(6, affine=True),
        (5, 6, 7),
    ),
    "group": (lambda fused: GroupNorm(3, 6, fused=fused), lambda: nn.GroupNorm(3, 6), SHAPE),
    "group flat": (lambda fused: GroupNorm(2, 6, fused=fused), lambda: nn.GroupNorm(2, 6), (5, 6)),
    "group bare": (
        lambda fused: GroupNorm(2, 6, affine=False, fused=fused),
        lambda: nn.GroupNorm(2, 6, affine=False),
        SHAPE,
    ),
    "layer": (lambda fused: LayerNorm(3, fused=fused), lambda: nn.LayerNorm(3), SHAPE),
    "layer of two": (lambda fused: LayerNorm((4, 3), fused=fused), lambda: nn.LayerNorm((4, 3)), SHAPE),
    "layer without bias": (
        lambda fused: LayerNorm(3, bias=False, fused=fused),
        lambda: nn.LayerNorm(3, bias=False),
        SHAPE,
    ),
    "layer bare": (
        lambda fused: LayerNorm(3, affine=False, eps=1e-2, fused=fused),
        lambda: nn.LayerNorm(3, elementwise_affine=False, eps=1e-2),
        SHAPE,
    ),
    "rms": (lambda fused: RMSNorm(3, fused=fused), lambda: nn.RMSNorm(3, eps=1e-6), SHAPE),
    "rms of two": (
        lambda fused: RMSNorm((4, 3), eps=1e-2, fused=fused),
        lambda: nn.RMSNorm((4, 3), eps=1e-2),
        SHAPE,
    ),
    "rms bare": (
        lambda fused: RMSNorm(3, affine=False, fused=fused),
        lambda: nn.RMSNorm(3, eps=1e-6, elementwise_affine=False),
        SHAPE,
    ),
}
every = pytest.mark.parametrize("name", PAIRS)
both = pytest.mark.parametrize("fused", [True, False], ids=["kernel", "formula"])


def pair(name, fused, dtype=torch.float64):
    ours, theirs, shape = PAIRS[name]
    ours, theirs = ours(fused).to(dtype), theirs().to(dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())  # the keys are torch's
    return ours, theirs, shape


@every
@both
def test_equals_torch(name, fused, seed):
    ours, theirs, shape = pair(name, fused)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        x = torch.randn(shape, dtype=torch.float64) * 3 + 2
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = ours(a), theirs(b)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
        grad = torch.randn_like(out)
        for found, wanted in zip(
            torch.autograd.grad(out, [a, *ours.parameters()], grad),
            torch.autograd.grad(expected, [b, *theirs.parameters()], grad),
            strict=True,
        ):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


@every
def test_formula_and_kernel_agree_in_half_precision(name, seed):
    formula, kernel, shape = pair(name, fused=False, dtype=torch.bfloat16)
    x = torch.randn(shape).to(torch.bfloat16)
    out = formula(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, kernel(x), rtol=0.02, atol=0.02)


@every
@both
def test_gradcheck(name, fused, seed):
    ours, _, shape = pair(name, fused)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,), fast_mode=True)


def test_axes_are_the_whole_difference(seed):
    x = torch.randn(SHAPE, dtype=torch.float64)
    torch.testing.assert_close(BatchNorm(6).double()(x), normalize_over(x, (0, 2, 3)))
    torch.testing.assert_close(InstanceNorm(6)(x), normalize_over(x, (2, 3)))
    torch.testing.assert_close(GroupNorm(1, 6).double()(x), normalize_over(x, (1, 2, 3)))
    torch.testing.assert_close(LayerNorm(3).double()(x), normalize_over(x, -1))
    torch.testing.assert_close(RMSNorm(3).double()(x), normalize_over(x, -1, eps=1e-6, centre=False))


def test_normalised_means_zero_mean_and_unit_variance(seed):
    x = torch.randn(SHAPE, dtype=torch.float64) * 7 - 3
    for axes in [(0,), (1, 3), (0, 2, 3), (-1,), (0, 1, 2, 3)]:
        mean, variance = moments_over(normalize_over(x, axes, eps=0.0), axes)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)
        torch.testing.assert_close(variance, torch.ones_like(variance), rtol=0, atol=1e-12)


def test_moments_of_the_course_tensor():
    """4 samples, 2 channels, 3 places; worked by hand."""
    x = torch.tensor(
        [[[4, 3, 2], [1, 4, 3]], [[3, 4, 1], [4, 2, 2]], [[3, 2, 3], [4, 1, 2]], [[1, 1, 3], [4, 1, 2]]]
    ).double()
    mean, variance = moments_over(x, (0, 2))
    assert mean.flatten().tolist() == [2.5, 2.5]
    torch.testing.assert_close(variance.flatten(), torch.tensor([13 / 12, 17 / 12]).double())
    mean, variance = moments_over(x, (1, 2))
    torch.testing.assert_close(mean.flatten() * 6, torch.tensor([17.0, 16, 15, 12]).double())
    torch.testing.assert_close(variance.flatten() * 36, torch.tensor([41.0, 44, 33, 48]).double())
    assert moments_over(x, 2)[1][2, 1].item() == pytest.approx(14 / 9)


def test_running_statistics_ignore_evaluation(seed):
    norm = BatchNorm(6, fused=False).eval()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(torch.randn(SHAPE))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@both
def test_is_torchs_to_those_who_ask(fused):
    """Weight-decay filters, SyncBatchNorm and averaging of statistics look for torch's classes."""
    assert isinstance(BatchNorm(3, fused=fused), nn.modules.batchnorm._BatchNorm)
    assert isinstance(LayerNorm(3, fused=fused), nn.LayerNorm)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(BatchNorm(3, fused=fused)), nn.SyncBatchNorm)


@both
@pytest.mark.parametrize(
    "norm, shape, takes",
    [
        (BatchNorm, (2, 4, 5), r"\(2, 4, 5\); takes \(N, 3, …\)"),
        (InstanceNorm, (2, 3), r"\(2, 3\); takes \(N, 3, length, …\)"),
        (lambda n, fused: GroupNorm(3, n, fused=fused), (2, 4), r"takes \(N, 3, …\)"),
        (LayerNorm, (3, 2), r"\(3, 2\); takes \(…, 3\)"),
        (RMSNorm, (3, 2), r"\(3, 2\); takes \(…, 3\)"),
        (lambda n, fused: LayerNorm((4, n), fused=fused), (3,), r"takes \(…, 4, 3\)"),
        (BatchNorm, (1, 3), "no variance"),
    ],
)
def test_wrong_shapes_are_named(norm, shape, takes, fused):
    with pytest.raises(ValueError, match=takes):
        norm(3, fused=fused)(torch.randn(shape))


@pytest.mark.parametrize("axes", [(), 4, (0, 0), (0, -4), (-5,)])
def test_wrong_axes_are_named(axes):
    with pytest.raises(ValueError, match="from -4 to 3"):
        normalize_over(torch.randn(SHAPE), axes)
