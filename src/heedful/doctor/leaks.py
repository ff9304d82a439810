"""Who hears whom: exact questions about independence, answered by gradients that must be zero."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..graphs import Graph
from .copies import undisturbed
from .findings import Finding, finding
from .graph import first_tensor


@contextlib.contextmanager
def asked(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, random states put back, gradients on, the model's mode and gradients as they were."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with undisturbed(0), torch.enable_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _traced(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """(input with a gradient, output): tokens are followed from their embedding on."""
    if x.is_floating_point():
        entry = x.detach().clone().requires_grad_()
        output = first_tensor(model(entry))[0]
        if output is None:
            raise ValueError("the model's output holds no tensor of floats")
        return entry, output
    entries: list[Tensor] = []

    def follow(module, inputs, output):
        if isinstance(module, nn.Embedding) and not entries and inputs[0].shape == x.shape:
            entries.append(output.detach().requires_grad_())
            return entries[0]
        return None

    handles = [m.register_forward_hook(follow) for m in model.modules() if isinstance(m, nn.Embedding)]
    try:
        output = first_tensor(model(x))[0]
    finally:
        for handle in handles:
            handle.remove()
    if output is None or not entries:
        raise ValueError(
            "tokens are followed from an nn.Embedding of the whole input, and this model has none; give "
            "floats"
        )
    return entries[0], output


def _random(shape, like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(like)


def _places(count: int, most: int = 64) -> list[int]:
    """All of them, or some spread over the whole."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def check_causal(model: nn.Module, x: Tensor, *, positions: int = 64) -> Finding | None:
    """Whether output i depends on an input after i; None where none does.

    x is (batch, length) tokens or (batch, length, features), outputs (batch, length, …). Each output,
    projected randomly, must have an exactly zero gradient from everything later. Positions beyond `positions`
    are sampled evenly.

    >>> model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
    >>> check_causal(model, torch.randint(10, (2, 6))) is None
    True
    """
    with asked(model):
        entry, output = _traced(model, x)
        if output.dim() < 3 or output.shape[1] != x.shape[1]:
            raise ValueError(
                f"check_causal(): the output has shape {tuple(output.shape)}, the input {tuple(x.shape)}; "
                f"it takes one output for each position, (batch, length, …)."
            )
        r = _random(output.shape[2:], output, 1)
        projected = (output * r).flatten(2).sum(-1)  # (batch, length)
        worst, scale, pair = 0.0, 0.0, (0, 0)
        for i in _places(output.shape[1], positions):
            (gradient,) = torch.autograd.grad(
                projected[:, i].sum(), entry, retain_graph=True, allow_unused=True
            )
            if gradient is None:
                continue
            heard = gradient.abs().flatten(2).amax(-1).amax(0)  # (length,)
            scale = max(scale, float(heard.max()))
            if i + 1 < len(heard):
                later = heard[i + 1 :]
                if float(later.max()) > worst:
                    worst, pair = float(later.max()), (i, i + 1 + int(later.argmax()))
    if worst == 0.0:
        return None
    return finding(
        "causal-leak",
        worst / scale if scale else worst,
        f"output {pair[0]} depends on input {pair[1]}",
        where=_leaking(model, x, pair, 1),
    )


def _leaking(model: nn.Module, x: Tensor, pair: tuple[int, int], axis: int) -> str:
    """The first module, in order of running, that lets the input of the second place into the first."""
    i, j = pair
    try:
        other = x.clone()
        changed = other.select(axis, j)
        changed += 1
        if not x.is_floating_point():
            changed %= int(x.max()) + 1
        runs: list[list[tuple[str, Tensor]]] = []
        for given in (x, other):
            seen: list[tuple[str, Tensor]] = []
            handles = [
                module.register_forward_hook(_keeper(name, seen))
                for name, module in model.named_modules()
                if name
            ]
            with asked(model), torch.no_grad():
                model(given)
            for handle in handles:
                handle.remove()
            runs.append(seen)
        for (name, a), (_, b) in zip(*runs, strict=True):
            apart = a.dim() >= axis + 2 and a.shape[axis] == x.shape[axis]
            if apart and not torch.equal(a.select(axis, i), b.select(axis, i)):
                return name
    except Exception:
        pass
    return ""


def _keeper(name: str, seen: list) -> Callable:
    def hook(module, inputs, output):
        tensor, _ = first_tensor(output)
        if tensor is not None:
            seen.append((name, tensor.detach()))

    return hook


def check_batch_independence(model: nn.Module, x: Tensor, *, axis: int = 0) -> Finding | None:
    """Whether a sample's output depends on another sample of its batch; None where none does.

    In evaluation mode. Outputs are projected randomly: their sum would be constant behind a LayerNorm, with a
    zero gradient whatever leaks.

    >>> check_batch_independence(nn.Linear(4, 2), torch.randn(3, 4)) is None
    True
    """
    if x.shape[axis] < 2:
        raise ValueError("check_batch_independence(): the batch holds one sample; it takes two or more.")
    with asked(model):
        entry, output = _traced(model, x)
        if output.dim() <= axis or output.shape[axis] != x.shape[axis]:
            raise ValueError(
                f"check_batch_independence(): the output has shape {tuple(output.shape)}; axis {axis} "
                f"should hold "
                f"the {x.shape[axis]} samples."
            )
        output = output.movedim(axis, 0)
        r = _random(output.shape[1:], output, 2)
        projected = (output * r).reshape(len(output), -1).sum(-1)
        worst, own, pair = 0.0, 0.0, (0, 0)
        for i in _places(len(projected), 16):
            (gradient,) = torch.autograd.grad(projected[i], entry, retain_graph=True, allow_unused=True)
            if gradient is None:
                continue
            heard = gradient.abs().movedim(axis, 0).flatten(1).amax(-1)
            own = max(own, float(heard[i]))
            heard[i] = 0
            if float(heard.max()) > worst:
                worst, pair = float(heard.max()), (i, int(heard.argmax()))
    if worst == 0.0:
        return None
    return finding(
        "batch-leak",
        worst / own if own else float("inf"),
        f"the output of sample {pair[0]} depends on sample {pair[1]}",
        where=_leaking(model, x, pair, axis),
    )


def check_overlap(train: Tensor, test: Tensor) -> Finding | None:
    """Which test samples are training samples, bit for bit; None where there is none.

    >>> x = torch.randn(20, 8)
    >>> check_overlap(x[:15], x[10:]).measured
    0.5
    """
    a, b = (_rows(samples) for samples in (train, test))
    seen = set(a)
    share = sum(row in seen for row in b) / max(1, len(b))
    if share == 0:
        return None
    return finding(
        "train-test-overlap", share, f"{share:.0%} of {len(b):,} test samples are in the training set"
    )


def _rows(samples: Tensor) -> list[bytes]:
    flat = samples.detach().cpu().reshape(len(samples), -1).contiguous()
    flat = flat.to(torch.uint8) if flat.dtype == torch.bool else flat.view(torch.uint8)
    return [row.tobytes() for row in flat.numpy()]


def check_permutation(
    model: Callable[..., Any],
    x: Tensor,
    graph: Graph | Tensor | None = None,
    *,
    axis: int = -2,
    invariant: bool = False,
) -> Finding | None:
    """Whether permuting the input along `axis` permutes the output alike (or, `invariant`, leaves it).

    Where the model takes a graph too, as (nodes, nodes) numbers, (2, edges) or a `Graph`, its nodes are
    renumbered alike: model(Px, PAPᵀ) = P model(x, A).

    >>> check_permutation(nn.Linear(4, 2), torch.randn(5, 4)) is None
    True
    >>> check_permutation(lambda x, a: a @ x, torch.randn(5, 4), torch.rand(5, 5)) is None
    True
    """
    generator = torch.Generator().manual_seed(3)
    order = torch.randperm(x.shape[axis], generator=generator).to(x.device)
    evaluating = asked(model) if isinstance(model, nn.Module) else contextlib.nullcontext()
    with evaluating, torch.no_grad():
        before = first_tensor(model(x) if graph is None else model(x, graph))[0]
        other = x.index_select(axis, order)
        after = first_tensor(model(other) if graph is None else model(other, _renumbered(graph, order)))[0]
    assert before is not None and after is not None
    expected = before if invariant else before.index_select(axis, order)
    error = float((after - expected).norm() / before.norm().clamp_min(1e-30))
    if error < 1e-4:
        return None
    verb = "changes the output" if invariant else "does not permute the output alike"
    what = f"permuting axis {axis}" if graph is None else "renumbering the nodes"
    return finding("not-equivariant", error, f"{what} {verb}")


def _renumbered(graph: Graph | Tensor, order: Tensor) -> Graph | Tensor:
    """The same graph, node order[k] called k."""
    if isinstance(graph, Graph):
        return graph.permute(order)
    if graph.is_floating_point() or graph.dtype == torch.bool or graph.shape[0] != 2:
        return graph.index_select(-1, order).index_select(-2, order)
    return order.argsort()[graph]
