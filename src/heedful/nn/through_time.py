"""A recurrent net unrolled, and back-propagation through time: by autograd or by hand, whole or truncated.

    a_t = W_x x_t + W_h h_{t−1} + b        h_t = φ(a_t) + nudge_t

The nudge is zero; it is there because the gradient that reaches it is ∇h_t, all that the loss says of h_t.
With e_t what is said of h_t directly (by the loss, or by the layer above), the derivation is

    ∇h_t = e_t + W_hᵀ δ_{t+1}              δ_t = φ'(a_t) ⊙ ∇h_t
    ∇W_x = Σ_t δ_t x_tᵀ     ∇W_h = Σ_t δ_t h_{t−1}ᵀ     ∇b = Σ_t δ_t     ∇x_t = W_xᵀ δ_t     ∇h_0 = W_hᵀ δ_1

Truncated at k, the recursion is followed k times and no further: ∇h_s hears L_s … L_{s+k}.
Functions here return φ(a_t) of every layer, (layers, N, T, hidden).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

# φ, and φ' as a function of φ's value
ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "tanh": (torch.tanh, lambda h: 1 - h * h),
    "sigmoid": (torch.sigmoid, lambda h: h * (1 - h)),
    "relu": (torch.relu, lambda h: (h > 0).to(h.dtype)),
    "identity": (lambda a: a, torch.ones_like),
}

Layer = tuple[Tensor, Tensor, Tensor | None]  # W_x, W_h, b


def unroll(activation: str, layers: list[Layer], x: Tensor, start: Tensor, nudge: Tensor | None) -> Tensor:
    """Step by step, for autograd to go back over."""
    phi, _ = ACTIVATIONS[activation]
    found = []
    for number, (W_x, W_h, b) in enumerate(layers):
        h, fired = start[number], []
        for t, a in enumerate(F.linear(x, W_x, b).unbind(1)):  # W_x x_t + b, all t at once
            h = phi(torch.addmm(a, h, W_h.T))
            fired.append(h)
            h = h if nudge is None else h + nudge[number, :, t]
        found.append(torch.stack(fired, 1))
        x = nudged(found[-1], None if nudge is None else nudge[number])
    return torch.stack(found)


def unroll_truncated(
    activation: str, layers: list[Layer], x: Tensor, start: Tensor, nudge: Tensor | None, k: int
) -> Tensor:
    """Each h_t by a run of its own from h_{t−k−1}, a constant: all runs side by side, k + 1 steps long.

    Runs of the first k states begin at `start`, which is within k steps of them, and wait there for step 1.
    """
    phi, _ = ACTIVATIONS[activation]
    steps = x.shape[1]
    with torch.no_grad():
        states = nudged(unroll(activation, layers, x, start, nudge), nudge)
        past = torch.cat([start.unsqueeze(2), states[:, :, : steps - k - 1]], 2)  # h_0 … h_{T−k−1}
    h = list(torch.cat([start.unsqueeze(2).expand(-1, -1, k, -1), past], 2))
    for lag in range(k, -1, -1):
        begun = (torch.arange(steps, device=x.device) >= lag).view(-1, 1)
        below, fired = _delayed(x, lag), []
        for number, (W_x, W_h, b) in enumerate(layers):
            fired.append(phi(F.linear(below, W_x, b) + F.linear(h[number], W_h)))
            state = nudged(fired[-1], None if nudge is None else _delayed(nudge[number], lag))
            below = h[number] = torch.where(begun, state, h[number])
    return torch.stack(fired)


def unroll_by_hand(
    activation: str, layers: list[Layer], x: Tensor, start: Tensor, nudge: Tensor | None, k: int | None
) -> Tensor:
    """Step by step, to go back over as derived above; k steps of it, or all."""
    flat = [each for layer in layers for each in layer]
    return _ByHand.apply(activation, k, x, start, nudge, *flat)


def nudged(fired: Tensor, nudge: Tensor | None) -> Tensor:
    return fired if nudge is None else fired + nudge


def _delayed(x: Tensor, lag: int) -> Tensor:
    """x_{t−lag} for every t, zero before the beginning; (N, T, …)."""
    return x if lag == 0 else F.pad(x[:, :-lag], (0, 0, lag, 0))


class _ByHand(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(activation, k, x, start, nudge, *flat):
        return unroll(activation, _layers(flat), x, start, nudge)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.activation, ctx.k, *tensors = inputs
        ctx.save_for_backward(output, *tensors)

    @staticmethod
    def backward(ctx, e):
        fired, x, start, nudge, *flat = ctx.saved_tensors
        layers = _layers(flat)
        slopes = ACTIVATIONS[ctx.activation][1](fired)
        if ctx.k is None:
            delta, flow = _recursion(layers, slopes, e)
        else:
            delta, flow = _truncated_recursion(layers, slopes, e, ctx.k)
        h = nudged(fired, nudge)
        below = [x, *h[:-1]]
        found = []
        for number, (_, _, b) in enumerate(layers):
            found.append(_outer(delta[number], below[number]))
            at_first = _outer(delta[number][:, :1], start[number].unsqueeze(1))
            found.append(_outer(delta[number][:, 1:], h[number, :, :-1]) + at_first)
            found.append(None if b is None else delta[number].sum((0, 1)))
        grad_x = delta[0] @ layers[0][0]
        grad_start = torch.stack([each[:, 0] for each in flow])
        grad_nudge = None
        if nudge is not None:  # e reaches it by the sum φ + nudge; here comes what later steps and layers say
            above = [*(delta[i + 1] @ layers[i + 1][0] for i in range(len(layers) - 1)), 0]
            grad_nudge = torch.stack([_later(each) + more for each, more in zip(flow, above, strict=True)])
        return None, None, grad_x, grad_start, grad_nudge, *found


def _recursion(layers: list[Layer], slopes: Tensor, e: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """δ_t and W_hᵀ δ_t of every layer, (N, T, hidden): from the top layer down, from the last step back."""
    found = []
    direct = e[-1]
    for number, (W_x, W_h, _) in reversed(list(enumerate(layers))):
        flow, deltas, flows = torch.zeros_like(direct[:, 0]), [], []
        for e_t, slope in zip(reversed(direct.unbind(1)), reversed(slopes[number].unbind(1)), strict=True):
            deltas.append(slope * (e_t + flow))
            flow = deltas[-1] @ W_h
            flows.append(flow)
        found.append((torch.stack(deltas[::-1], 1), torch.stack(flows[::-1], 1)))
        if number:
            direct = e[number - 1] + found[-1][0] @ W_x
    return [delta for delta, _ in found[::-1]], [flow for _, flow in found[::-1]]


def _truncated_recursion(
    layers: list[Layer], slopes: Tensor, e: Tensor, k: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The same followed k times, for all t at once: after round r, δ_t holds what L_t … L_{t+r} say."""
    delta, flow = [torch.zeros_like(each) for each in e], [torch.zeros_like(each) for each in e]
    for _ in range(k + 1):
        direct = e[-1]
        for number, (W_x, W_h, _) in reversed(list(enumerate(layers))):
            flow[number] = delta[number] @ W_h
            delta[number] = slopes[number] * (direct + _later(flow[number]))
            if number:
                direct = e[number - 1] + delta[number] @ W_x
    return delta, flow


def _later(flow: Tensor) -> Tensor:
    """What flows into each step from the one after it; nothing into the last."""
    return F.pad(flow[:, 1:], (0, 0, 0, 1))


def _outer(delta: Tensor, x: Tensor) -> Tensor:
    """Σ δ_t x_tᵀ over steps and samples."""
    return delta.flatten(0, 1).T @ x.flatten(0, 1)


def _layers(flat) -> list[Layer]:
    return [tuple(flat[i : i + 3]) for i in range(0, len(flat), 3)]  # type: ignore[misc]
