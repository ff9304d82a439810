"""Experiments on copies: gradients along depth, twins with other weights or skips, batches again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .copies import bare, copied, undisturbed
from .facts import Batch
from .graph import first_tensor

_WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The batch's loss; of a model whose loss is not known, a fixed random projection of its outputs."""
    output = model(*batch.arguments, **batch.options)
    if batch.objective is not None:
        return batch.objective.function(output)
    return projection(output)


def projection(output: Any) -> Tensor:
    """Σ r · output with fixed random r: unlike a plain sum, it does not cancel behind a norm."""
    tensor, _ = first_tensor(output)
    if tensor is None:
        raise ValueError("the model's output holds no tensor of floats")
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(tensor.shape, generator=generator).to(tensor)
    return (tensor * r).sum() / math.sqrt(tensor.numel())


# Gradients along depth


@dataclass
class Flow:
    """Norms of ∂loss/∂output of every weighted layer, in the order they ran."""

    names: list[str]
    norms: list[float]
    entries: list[float]  # of ∂loss/∂input, which where there are skips is the stream's

    @property
    def ratio(self) -> float:
        """First quarter over last quarter, each by its largest: queries and keys get little by nature."""
        quarter = max(1, len(self.norms) // 4)
        first, last = max(self.norms[:quarter], default=0.0), max(self.norms[-quarter:], default=0.0)
        if last == 0 and first == 0:
            return math.nan
        return first / last if last else math.inf

    @property
    def body(self) -> float:
        """First quarter over third: a last layer that shrinks once, as small heads do, has no part in it."""
        quarter = max(1, len(self.norms) // 4)
        first, third = max(self.norms[:quarter]), max(self.norms[-2 * quarter : -quarter], default=0.0)
        return first / third if third else (math.inf if first else 0.0)

    @property
    def stream(self) -> float:
        """What goes into the first quarter, where there are skips the stream's: over the last, or where less
        arrives there over the third, for a small head and what pools before it shrink it once each.
        """
        quarter = max(1, len(self.norms) // 4)
        last = max(self.norms[-quarter:], default=0.0)
        least = min(last, max(self.norms[-2 * quarter : -quarter], default=last)) or last
        return max(self.entries[:quarter], default=0.0) / least if least else 0.0

    @property
    def depth(self) -> int:
        return len(self.norms)


def flow(model: nn.Module, batch: Batch) -> Flow:
    """How gradients travel through a model: their norms at the outputs of its layers."""
    seen: list[tuple[str, Tensor, Tensor]] = []
    handles = []

    def keep(name):
        def hook(module, inputs, output):
            if isinstance(output, Tensor) and output.requires_grad:
                entry = inputs[0] if inputs and isinstance(inputs[0], Tensor) else output
                seen.append((name, output, entry if entry.requires_grad else output))

        return hook

    for name, module in model.named_modules():
        if isinstance(module, _WEIGHTED):
            handles.append(module.register_forward_hook(keep(name)))
    try:
        with undisturbed(0), torch.enable_grad():
            loss = loss_of(model, batch)
            tensors = [output for _, output, _ in seen] + [entry for _, _, entry in seen]
            gradients = torch.autograd.grad(loss, tensors, allow_unused=True) if tensors else ()
    finally:
        for handle in handles:
            handle.remove()
    sizes = [None if gradient is None else float(gradient.norm()) for gradient in gradients]
    reached = [k for k in range(len(seen)) if sizes[k] is not None]
    return Flow(
        [seen[k][0] for k in reached],
        [sizes[k] or 0.0 for k in reached],
        [sizes[len(seen) + k] or 0.0 for k in reached],
    )


def again(model: nn.Module) -> nn.Module | None:
    """A twin with weights drawn anew by He's rule (orthogonal under tanh and sigmoid), biases zero."""
    twin = copied(model)
    if twin is None:
        return None
    bent = any(isinstance(module, (nn.Tanh, nn.Sigmoid)) for module in twin.modules())
    with undisturbed(0), torch.no_grad():
        for module in twin.modules():
            if isinstance(module, _WEIGHTED):
                if bent:
                    nn.init.orthogonal_(module.weight)
                else:
                    nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    return twin


def with_relu(model: nn.Module) -> nn.Module | None:
    """A twin with ReLU in place of modules that squash, its weights drawn by He's rule; None without any."""
    twin = copied(model)
    if twin is None:
        return None
    places = [
        (parent, name)
        for parent in twin.modules()
        for name, child in parent.named_children()
        if isinstance(child, (nn.Sigmoid, nn.Tanh, nn.Softsign, nn.Hardsigmoid))
    ]
    for parent, name in places:
        setattr(parent, name, nn.ReLU())
    return again(twin) if places else None


def with_skips(model: nn.Module, batch: Batch, length: int = 2) -> tuple[nn.Module | None, list]:
    """A twin with skips around every `length` weighted layers of one shape, and the names of their ends."""
    twin = copied(model)
    if twin is None:
        return None, []
    names = {id(module): name for name, module in twin.named_modules()}
    order: list[tuple[nn.Module, tuple, tuple]] = []
    handles = []

    def note(module, inputs, output):
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            order.append((module, tuple(inputs[0].shape), tuple(output.shape)))

    leaves = [module for module in twin.modules() if not next(module.children(), None)]
    handles += [module.register_forward_hook(note) for module in leaves]
    with undisturbed(0), torch.no_grad():
        twin(*batch.arguments, **batch.options)
    for handle in handles:
        handle.remove()
    if len({id(module) for module, _, _ in order if isinstance(module, _WEIGHTED)}) < len(
        [1 for module, _, _ in order if isinstance(module, _WEIGHTED)]
    ):
        return None, []  # a layer that runs twice has no place of its own
    places = [place for place, (module, _, _) in enumerate(order) if isinstance(module, _WEIGHTED)]
    made: list[tuple[str, str]] = []
    at = 0
    while at < len(places):
        begin = places[at]
        shape = order[begin][1]
        group = [place for place in places[at : at + length] if order[place][1] == order[place][2] == shape]
        if len(group) < length:
            at += 1
            continue
        # The skip ends behind the norm that follows, before an activation.
        end = group[-1]
        while end + 1 < len(order) and end + 1 not in places and order[end + 1][2] == shape:
            if "Norm" not in type(order[end + 1][0]).__name__:
                break
            end += 1
        _skip(order[begin][0], order[end][0])
        made.append((names[id(order[begin][0])], names[id(order[end][0])]))
        at += length
    return (twin, made) if made else (None, [])


def _skip(begin: nn.Module, end: nn.Module) -> None:
    """out ← out + in, from the first module's input to the last one's output."""
    kept: list[Tensor] = []

    def before(module, inputs):
        kept[:] = [inputs[0]]

    def after(module, inputs, output):
        return output + kept[0]

    begin.register_forward_pre_hook(before)
    end.register_forward_hook(after)


# The same batches again


def twin_optimizer(
    optimizer: Optimizer,
    original: nn.Module,
    twin: nn.Module,
    factor: float = 1.0,
    rates: Mapping[int, float] | None = None,
) -> Optimizer | None:
    """An optimizer of the same kind and settings for a twin, its learning rates multiplied.

    `rates` are those of its groups; unless given, the highest of their schedules, which may have begun low,
    and may have ended low.
    """
    places = {id(p): q for p, q in zip(original.parameters(), twin.parameters(), strict=True)}
    groups = []
    for place, group in enumerate(optimizer.param_groups):
        mine = [places[id(p)] for p in group["params"] if id(p) in places]
        if mine:
            settings = {
                key: entry
                for key, entry in group.items()
                if key not in ("params", "initial_lr", "max_lr", "min_lr")
            }
            highest = max(float(group.get(name, 0.0)) for name in ("lr", "initial_lr", "max_lr"))
            settings["lr"] = (rates or {}).get(place, highest) * factor
            groups.append({"params": mine, **settings})
    if not groups:
        return None
    try:
        return type(optimizer)(groups, **({"lr": groups[0]["lr"]} if "lr" in optimizer.defaults else {}))
    except Exception:
        return None


def replay(
    initial: nn.Module,
    original: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    steps: int,
    factor: float = 1.0,
    rates: Mapping[int, float] | None = None,
) -> tuple[float, float]:
    """(first, last) mean loss over recorded batches of a copy trained on them with another learning rate."""
    twin = copied(initial)
    made = twin and twin_optimizer(optimizer, bare(original), twin, factor, rates)
    if twin is None or not isinstance(made, Optimizer):
        return math.nan, math.nan
    twin.train()

    def mean() -> float:
        with undisturbed(0), torch.no_grad():
            return sum(float(loss_of(twin, batch)) for batch in batches) / len(batches)

    first = mean()
    with undisturbed(0), torch.enable_grad():
        for step in range(steps):
            made.zero_grad()
            loss = loss_of(twin, batches[step % len(batches)])
            if not bool(torch.isfinite(loss)):
                return first, math.inf
            loss.backward()
            made.step()
    last = mean()
    return first, last if math.isfinite(last) else math.inf


def overfit(
    model: nn.Module, batch: Batch, steps: int = 200, rates: Sequence[float] = (1e-2, 1e-3)
) -> tuple[float, float]:
    """(first loss, lowest loss) of copies trained on one batch alone by Adam."""
    first, lowest = math.nan, math.inf
    for rate in rates:
        twin = copied(model)
        if twin is None:
            return math.nan, math.nan
        twin.train()
        parameters = [p for p in twin.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=rate)
        with undisturbed(0), torch.enable_grad():
            for _ in range(steps):
                optimizer.zero_grad()
                loss = loss_of(twin, batch)
                value = float(loss.detach())
                first = value if math.isnan(first) else first
                if not math.isfinite(value) or not loss.requires_grad:
                    break
                lowest = min(lowest, value)
                if lowest < 0.05 * abs(first):
                    return first, lowest
                loss.backward()
                optimizer.step()
    return first, lowest


def constant_guess(batch: Batch) -> float | None:
    """The loss of the best constant guess: the entropy of the labels, or the targets' variance."""
    aim = batch.objective
    if aim is None or aim.target is None:
        return None
    target = aim.target
    if aim.kind == "classes":
        counts = target[target >= 0].flatten().bincount().double()
        share = counts / counts.sum()
        return float(torch.special.entr(share).sum())
    if aim.kind == "squares":
        return float(target.double().var(0, correction=0).mean()) if len(target) > 1 else None
    if aim.kind in ("logits", "probabilities"):
        share = target.double().mean(0)
        return float((torch.special.entr(share) + torch.special.entr(1 - share)).mean())
    return None


# Pieces against the whole


def pieces_angle(
    model: nn.Module, batches: Sequence[Batch], loss: Callable | None = None
) -> tuple[float, float] | None:
    """(angle in degrees, size ratio) of the mean of the pieces' gradients against that of all at once."""
    twin = copied(model)
    if twin is None or len(batches) < 2:
        return None
    twin.train()
    parameters = [p for p in twin.parameters() if p.requires_grad]

    def gradient(made: Callable[[], Tensor]) -> Tensor:
        with undisturbed(0), torch.enable_grad():
            found = torch.autograd.grad(made(), parameters, allow_unused=True)
        return torch.cat([g.flatten().double() for g in found if g is not None])

    shapes = {tuple(t.shape[1:]) for b in batches for t in b.arguments[:1] if isinstance(t, Tensor)}
    if len(shapes) != 1 or any(len(b.arguments) != 1 or b.options for b in batches):
        return None
    sizes = [len(batch.arguments[0]) for batch in batches]
    whole_input = torch.cat([batch.arguments[0] for batch in batches])

    def whole() -> Tensor:
        output = twin(whole_input)
        tensor, _ = first_tensor(output)
        if tensor is None:
            raise ValueError("no output")
        parts = tensor.split(sizes)
        return sum(
            (_piece(part, b) * n for part, b, n in zip(parts, batches, sizes, strict=True)),
            start=torch.zeros(()),
        ) / sum(sizes)

    def pieces() -> Tensor:
        total = torch.zeros(())
        for batch, n in zip(batches, sizes, strict=True):
            tensor, _ = first_tensor(twin(*batch.arguments))
            assert tensor is not None
            total = total + _piece(tensor, batch) * n
        return total / sum(sizes)

    a, b = gradient(whole), gradient(pieces)
    if float((a - b).norm()) <= 1e-5 * float(a.norm()):
        return 0.0, 1.0
    cosine = float(a @ b / (a.norm() * b.norm()))
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine)))), float(b.norm() / a.norm())


def _piece(output: Tensor, batch: Batch) -> Tensor:
    if batch.objective is not None:
        return batch.objective.function(output)
    return projection(output)
