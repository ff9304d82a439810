"""Losses and their backward passes: values, graphs still held, gradients that were left over."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import graph
from ..source import caller
from .listening import Listener, guarded, marked


class Backward(Listener):
    """Told before and after every backward pass."""

    def __init__(self, watch):
        super().__init__(watch)
        self.depth = 0
        self.pending: list[tuple[int, Tensor]] = []  # losses on a device, read when it costs little
        self.residual = 0.0  # gradients left over by the last backward pass, over the new ones
        self.told = -1  # the step whose loss was last told

    def before(self, tensors=None, *_, **options):
        self.depth += 1
        if self.depth > 1:
            return None
        return self._before_backward(tensors if tensors is not None else options.get("tensors"))

    def after(self, outer):
        self.depth -= 1
        if self.depth == 0 and outer is not None:
            self._after_backward(outer)

    @guarded(always=True)
    def _before_backward(self, tensors):
        loss = tensors if isinstance(tensors, Tensor) else (tensors[0] if tensors else None)
        if self.watch.asleep:
            if loss is not None and loss.numel() == 1 and self.told < self.facts.steps:
                self._tell(loss.detach() / self._scale(loss))
            return None
        site = caller()
        self.facts.loss_site = site
        stale = []
        for slot in self.facts.slots.values():
            gradient = slot.parameter.grad
            if gradient is None:
                slot.consumed = None
                slot.tainted = False
            elif slot.tainted or slot.consumed == (id(gradient), gradient._version):
                stale.append((slot, gradient, gradient._version))
            else:
                slot.consumed = None
        before = None
        if stale:
            norms = torch._foreach_norm([gradient.detach() for _, gradient, _ in stale])
            alive = [entry for entry, norm in zip(stale, norms, strict=True) if float(norm) > 0]
            for slot, _, _ in stale:
                slot.tainted = False
            stale = alive
            if self.watch.looking or self.facts.steps < 5:
                before = [gradient.detach().clone() for _, gradient, _ in stale]
        if loss is not None and loss.numel() == 1:
            if loss.grad_fn is not None:
                self._loss(loss, site)
            elif self.told < self.facts.steps:
                self._tell(loss.detach())  # nothing is behind it: its value is all there is
        return {"stale": stale, "before": before, "site": site}

    def _loss(self, loss: Tensor, site) -> None:
        facts = self.facts
        scale = self._scale(loss)
        value = loss.detach()
        if scale != 1.0:
            value = value / scale
        if not self.watch.cycle.pieces:
            self._tell(value)
        if not self.watch.looking:
            self.watch.cycle.pieces.append(
                {"site": site, "factor": None, "calls": len(self.watch.cycle.calls)}
            )
            return
        self.flush()
        apart = graph.take_apart(loss) if self.watch.readable else graph.Loss()
        self.watch.cycle.pieces.append(
            {
                "site": site,
                "factor": apart.factor / scale if apart.reduction == graph.MEAN else None,
                "calls": len(self.watch.cycle.calls),
            }
        )
        facts.graphs.append((facts.steps, marked(loss)))
        for kept, held in ((facts.graphs, facts.held), (facts.outputs, facts.outputs_held)):
            made = [reference for step, reference in kept if step < facts.steps]
            held.append((sum(reference() is not None for reference in made), len(made)))
        self.watch.reading.read(loss, apart, value, scale)

    def _scale(self, loss: Tensor) -> float:
        """By how much a gradient scaler has multiplied this loss."""
        reference, scale = self.watch.cycle.scales.get(id(loss), (None, 1.0))
        return scale if reference is not None and reference() is loss else 1.0

    def _tell(self, value: Tensor) -> None:
        """The loss of this step; on a device it is read later, for reading waits for the device."""
        self.told = self.facts.steps
        if value.is_cuda:
            self.pending.append((self.facts.steps, value.clone()))
        else:
            self._value(self.facts.steps, float(value))

    def _value(self, step: int, value: float) -> None:
        facts = self.facts
        facts.losses.append((step, value))
        if facts.bad_step is None and not math.isfinite(value):
            facts.bad_step = step
            self.watch.reading.find_bad()

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        for step, value in pending:
            self._value(step, float(value))

    @guarded
    def _after_backward(self, outer):
        for seen in self.facts.optimizers.values():
            if seen.waiting and "F" not in seen.order:
                seen.early += 1  # this graph was built before the step
            seen.waiting = False
            seen.order += "B"
            seen.backward_site = outer["site"]
            seen.filled = seen.filled or any(
                p.grad is not None for group in seen.optimizer.param_groups for p in group["params"]
            )
        stale, before = outer["stale"], outer["before"]
        used = []
        for place, (slot, gradient, version) in enumerate(stale):
            if slot.parameter.grad is gradient and gradient._version != version:
                slot.tainted = True
                if before is not None:
                    used.append((before[place], gradient.detach()))
        if used:
            old = torch.stack(torch._foreach_norm([a for a, _ in used])).norm()
            fresh = torch.stack(torch._foreach_norm([b - a for a, b in used])).norm()
            self.residual = float(old / fresh.clamp_min(1e-30))

        if self.watch.looking and len(self.watch.cycle.pieces) > 1:
            some = [slot.parameter for slot in self.facts.slots.values() if slot.parameter.grad is not None]
            self.watch.cycle.summed = {id(p): float(p.grad.norm()) for p in some[:8]}  # type: ignore[union-attr]
