"""How much of the labels a straight line can read off some features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def linear_probe(
    features: Tensor,
    labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    penalty: float = 1.0,
    method: str = "torch",
    standardize: bool = True,
) -> float:
    """min_{W, b} Σ cross-entropy(W f + b, label) + penalty/2 · ‖W‖²; the accuracy of its minimum, 0 to 1.

    Logistic regression has one minimum, so "torch" (L-BFGS in float64) and "sklearn" agree. With
    `standardize` features are first given mean 0 and variance 1 over the training set.

    >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    >>> linear_probe(x, torch.tensor([0, 0, 1, 1]), x, torch.tensor([0, 0, 1, 1]))
    1.0
    """
    if features.dim() != 2 or test_features.dim() != 2:
        raise ValueError(
            f"linear_probe(): features have shape {tuple(features.shape)} and {tuple(test_features.shape)}; "
            f"they must be (samples, features). Flatten them."
        )
    if len(features) != len(labels) or len(test_features) != len(test_labels):
        raise ValueError("linear_probe(): there must be one label for each row of features.")
    if penalty < 0:
        raise ValueError(f"linear_probe(): penalty is {penalty}; it must not be negative.")
    x, held = features.detach().double().cpu(), test_features.detach().double().cpu()
    y, truth = labels.cpu().long(), test_labels.cpu().long()
    if standardize:
        mean, spread = x.mean(0), x.std(0, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)
        x, held = (x - mean) / spread, (held - mean) / spread
    ways = {"torch": _torch, "sklearn": _sklearn}
    if method not in ways:
        raise ValueError(f"linear_probe(): method is {method!r}; it is torch or sklearn.")
    if len(y.unique()) < 2:
        raise ValueError("linear_probe(): all labels are the same; there is nothing to tell apart.")
    return float((ways[method](x, y, held, penalty) == truth).double().mean())


def _torch(x: Tensor, y: Tensor, held: Tensor, penalty: float) -> Tensor:
    classes = int(y.max()) + 1
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=1000,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure():
        solver.zero_grad()
        # Divided by the samples so that steps are of one size; the minimum is the same.
        loss = (
            F.cross_entropy(F.linear(x, weight, bias), y, reduction="sum")
            + penalty / 2 * weight.square().sum()
        ) / len(x)
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    return F.linear(held, weight, bias).argmax(1)


def _sklearn(x: Tensor, y: Tensor, held: Tensor, penalty: float) -> Tensor:
    from sklearn.linear_model import LogisticRegression

    strength = 1 / penalty if penalty else float("inf")
    model = LogisticRegression(C=strength, max_iter=10_000, tol=1e-8).fit(x.numpy(), y.numpy())
    return torch.from_numpy(model.predict(held.numpy()))
