"""Optimizers and how the loop uses them: cleared, clipped, scheduled, stepped, and in what order."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import Seen
from ..source import caller, in_library, variable
from .listening import Enough, Listener, guarded


class Steps(Listener):
    """Told of everything that happens to an optimizer."""

    @guarded(always=True)
    def optimizer_built(self, optimizer, *_):
        if type(optimizer).__init__ is Optimizer.__init__ or hasattr(optimizer, "param_groups"):
            self.watch.seen(optimizer).built = caller()

    @guarded
    def optimizer_cleared(self, optimizer, *_):
        self._cleared(self.watch.seen(optimizer))

    @guarded
    def model_cleared(self, model, *_):
        ids = {id(parameter) for parameter in model.parameters()}
        for seen in self.facts.optimizers.values():
            if any(id(p) in ids for p in _held(seen.optimizer)):
                self._cleared(seen)

    def _cleared(self, seen: Seen) -> None:
        seen.order += "Z"
        seen.zero_site = caller()
        for parameter in _held(seen.optimizer):
            slot = self.facts.slots.get(id(parameter))
            if slot is not None:
                slot.tainted, slot.consumed = False, None

    @guarded
    def scheduler_stepped(self, scheduler, *_):
        optimizer = getattr(scheduler, "optimizer", None)
        if getattr(scheduler, "_is_initial", False) or not isinstance(optimizer, Optimizer):
            return
        if in_library("load_state_dict"):
            return
        seen = self.watch.seen(optimizer)
        seen.order += "T"
        seen.schedule_site = caller()
        if not self.facts.scaler and (seen.steps == 0 or ("B" in seen.order and seen.steps > 0)):
            seen.schedule_early += 1

    @guarded
    def clipped(self, parameters, *_):
        if isinstance(parameters, Tensor):
            parameters = [parameters]
        ids = {id(parameter) for parameter in parameters}
        for seen in self.facts.optimizers.values():
            mine = [p for p in _held(seen.optimizer) if id(p) in ids]
            if not mine:
                continue
            seen.clip_site = caller()
            seen.clips += 1
            if seen.steps and "B" not in seen.order:
                # Nothing new since the step: this gradient has been used, or is not there yet.
                seen.clips_late += any(self._used(p) for p in mine)
                seen.clips_early += _none(mine)
            elif self.watch.cycle.scales and not seen.unscaled:
                seen.clips_scaled.append(next(iter(self.watch.cycle.scales.values()))[1])
            seen.order += "C"
            for slot in (self.facts.slots[id(p)] for p in mine):
                if slot.consumed is not None and slot.parameter.grad is not None:
                    # Still the gradient that was used, only smaller.
                    slot.consumed = (id(slot.parameter.grad), slot.parameter.grad._version + 1)

    def _used(self, parameter: Tensor) -> bool:
        slot, gradient = self.facts.slots[id(parameter)], parameter.grad
        return slot.consumed is not None and gradient is not None and slot.consumed[0] == id(gradient)

    @guarded(always=True)
    def scaled(self, result, scaler, *_):
        if isinstance(result, Tensor) and scaler.is_enabled():
            self.facts.scaler = True
            self.watch.cycle.scales = {id(result): (weakref.ref(result), float(scaler.get_scale()))}

    @guarded
    def unscaled(self, scaler, optimizer, *_):
        self.watch.seen(optimizer).unscaled = True

    def before(self, optimizer, arguments, options):
        return self._before_step(optimizer, arguments, options)

    @guarded
    def _before_step(self, optimizer, arguments, options):
        seen = self.watch.seen(optimizer)
        seen.step_site = caller()
        seen.name = seen.name or variable(optimizer)
        closure = (
            options.get("closure") if "closure" in options else (arguments[1] if len(arguments) > 1 else None)
        )
        if closure is not None and callable(closure):
            told = self._closure(closure, seen)
            if "closure" in options:
                return arguments, {**options, "closure": told}
            return (arguments[0], told, *arguments[2:]), options
        self._judge(seen)
        return None

    def _closure(self, closure, seen: Seen):
        """The closure as it is. Once a step, it is a loop like any other; more often, each time counts."""
        times = 0

        def told(*arguments, **options):
            nonlocal times
            times += 1
            if times > 1:
                self._once_more(seen)
            result = closure(*arguments, **options)
            if times == 1:
                self._gradients_made(seen)
            return result

        return told

    @guarded
    def _gradients_made(self, seen: Seen):
        self._judge(seen)

    @guarded
    def _once_more(self, seen: Seen):
        seen.closure = True
        seen.judged += 1
        if any(self.facts.slots[id(p)].tainted for p in _held(seen.optimizer)):
            seen.stale.append(self.watch.backward.residual)
        self.consume(seen)
        self.watch.cycle.pieces, self.watch.cycle.calls = [], []

    def _judge(self, seen: Seen) -> None:
        """Gradients are as the step will use them."""
        self._judge_order(seen)
        parameters = _held(seen.optimizer)
        if any(self.facts.slots[id(p)].tainted for p in parameters):
            seen.stale.append(self.watch.backward.residual)
        if self.watch.looking:
            self._before_change(seen, parameters)

    def _judge_order(self, seen: Seen) -> None:
        order = seen.order
        seen.judged += 1
        last = order.rfind("B")
        gradients = [p.grad for p in _held(seen.optimizer) if p.grad is not None]
        if last >= 0 and "Z" not in order[last:]:
            by_hand = seen.filled and not gradients  # no zero_grad() was heard, and they are gone
            seen.waiting = order.rfind("F") > last
            seen.cleared += by_hand and not seen.waiting
            return
        empty = _none(_held(seen.optimizer))
        forward = order.rfind("F")
        if last >= 0:
            if empty:  # cleared after the backward pass; by whom, the forward pass tells
                if forward > last:
                    seen.early += 1
                else:
                    seen.cleared += 1
        elif forward >= 0 and (empty or seen.steps > 0) and not self._by_hand(seen):
            seen.early += 1

    def _by_hand(self, seen: Seen) -> bool:
        """Whether gradients are new though no backward pass was heard: made by autograd.grad."""
        given = [(p, p.grad) for p in _held(seen.optimizer) if p.grad is not None]
        return any(self.facts.slots[id(p)].consumed != (id(g), g._version) for p, g in given)

    def _before_change(self, seen: Seen, parameters: list[Tensor]) -> None:
        with_gradient = [p for p in parameters if p.grad is not None and not p.grad.is_sparse]
        norms = torch._foreach_norm([p.grad.detach() for p in with_gradient]) if with_gradient else []  # type: ignore[union-attr]
        for parameter, norm in zip(with_gradient, norms, strict=True):
            slot = self.facts.slots[id(parameter)]
            slot.norm = max(slot.norm, float(norm))
        for parameter, norm in zip(with_gradient, norms, strict=True):
            if self.watch.cycle.summed.get(id(parameter)) and "C" not in seen.order and not self.facts.scaler:
                self.watch.cycle.rescaled = float(norm) / self.watch.cycle.summed[id(parameter)]
                break
        self.watch.cycle.old = (
            id(seen.optimizer),
            with_gradient,
            [p.detach().clone() for p in with_gradient],
        )

    def _changed(self, seen: Seen) -> None:
        if self.watch.cycle.old is None or self.watch.cycle.old[0] != id(seen.optimizer):
            return
        _, parameters, before = self.watch.cycle.old
        self.watch.cycle.old = None
        ratios = []
        for parameter, old in zip(parameters, before, strict=True):
            slot = self.facts.slots[id(parameter)]
            size = float(old.norm())
            moved = float((parameter.detach() - old).norm())
            slot.looks += 1
            slot.change = max(slot.change, moved / size if size else moved)
            if parameter.dim() >= 2 and size > 0:
                ratios.append(moved / size)
        if ratios:
            seen.changes.append(sorted(ratios)[len(ratios) // 2])

    def consume(self, seen: Seen) -> None:
        for parameter in _held(seen.optimizer):
            slot, gradient = self.facts.slots[id(parameter)], parameter.grad
            if gradient is not None:
                slot.consumed = (id(gradient), gradient._version)

    def after(self, optimizer, arguments, options):
        self._after_step(optimizer)
        if self.watch.limit is not None and self.facts.steps >= self.watch.limit:
            raise Enough

    @guarded(always=True)
    def _after_step(self, optimizer):
        facts = self.facts
        seen = facts.optimizers.get(id(optimizer)) or self.watch.seen(optimizer)
        seen.steps += 1
        for place, group in enumerate(optimizer.param_groups):
            rate = group.get("lr", 0.0)
            if type(rate) is float and rate > seen.rates.get(place, 0.0):
                seen.rates[place] = rate
        if not self.watch.asleep:
            self._changed(seen)
            self.consume(seen)
            self.watch.cycle_ends(seen)
            seen.order, seen.unscaled, seen.filled = "", False, False
        if seen.steps > facts.steps:  # with several optimizers, a round ends with the first to step again
            facts.steps = seen.steps
            self.watch.next()


def _none(parameters: list[Tensor]) -> bool:
    """Whether no gradient is there, or zeros."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    return not gradients or not any(float(norm) > 0 for norm in torch._foreach_norm(gradients))


def _held(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
