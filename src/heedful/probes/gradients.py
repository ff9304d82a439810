"""How gradients travel: through layers, through time, and through a function's Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def gradient_norms(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, float]:
    """‖∂loss/∂W‖ for every parameter, by name; gradients held by the model are left as they are.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> norms = gradient_norms(model, lambda: model(torch.ones(1, 2)).sum())
    >>> round(norms["weight"], 4)
    1.4142
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        found = torch.autograd.grad(loss(), list(named.values()), allow_unused=True)
    return {
        name: 0.0 if gradient is None else float(gradient.norm())
        for name, gradient in zip(named, found, strict=True)
    }


def state_gradient_norms(loss: Tensor, states: Sequence[Tensor]) -> list[float]:
    """‖∂loss/∂h_t‖ for the states of a sequence: what is left of the gradient t steps back."""
    found = torch.autograd.grad(loss, list(states), retain_graph=True, allow_unused=True)
    return [0.0 if gradient is None else float(gradient.norm()) for gradient in found]


def jacobian_spectrum(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The singular values of ∂function/∂x at x, largest first; inputs and outputs are flattened.

    >>> jacobian_spectrum(lambda x: x * torch.tensor([3.0, 1.0]), torch.zeros(2))
    tensor([3., 1.])
    """
    shape = x.shape
    jacobian = torch.func.jacrev(lambda flat: function(flat.view(shape)).reshape(-1))(x.detach().reshape(-1))
    return torch.linalg.svdvals(jacobian)
