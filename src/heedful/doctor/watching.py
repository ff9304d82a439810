"""A training run under observation: what the loop does, in what order, and what its numbers are.

Nothing here draws random numbers, keeps a graph alive or touches a tensor of the run; weights come out
bit for bit as they would have without.
"""

from __future__ import annotations

import copy
import functools
import gc
import math
import time
import weakref
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from . import graph
from .facts import Batch, Calls, Facts, Layer, Seen, Slot
from .instruments import Instruments
from .source import caller, in_library

TIERS = {"light": 0.01, "normal": 0.04, "deep": math.inf}  # share of the run's time spent on looking
_ALWAYS = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}  # steps looked at whatever they cost
_FOLLOWED = 20  # steps followed, if not looked at, whatever they cost
_LARGE = 30_000_000  # numbers of a model that is copied without being asked
_BYTES = 64 * 2**20  # of batches kept
_SENSITIVE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


class Enough(BaseException):
    """As many steps as were asked for; not an Exception, so that no script takes it for its own."""


class _Mark:
    """Lives as long as the graph that holds it."""

    __slots__ = ("__weakref__",)


def _guarded(method=None, *, always: bool = False):
    """An observer that fails must not fail the run; its time is counted. Asleep, only some are on duty."""
    if method is None:
        return functools.partial(_guarded, always=always)

    @functools.wraps(method)
    def guarded(self, *arguments, **options):
        if self.busy or (self.asleep and not always):
            return None
        start = time.perf_counter()
        self.busy = True
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            self.facts.note(f"{method.__name__} could not look: {type(error).__name__}: {error}")
            return None
        finally:
            self.busy = False
            self.facts.own += time.perf_counter() - start

    return guarded


class Watch:
    """Observes the training inside its `with` block; `report()` says what is wrong with it.

    >>> from heedful import doctor
    >>> model = nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    >>> x, y = torch.randn(32, 4), torch.randn(32, 1)
    >>> with doctor.watch(model, optimizer) as watch:
    ...     for _ in range(10):
    ...         nn.functional.mse_loss(model(x), y).backward()
    ...         optimizer.step()
    >>> [found.name for found in watch.report().findings]
    ['gradients-not-cleared']
    """

    def __init__(self, *subjects: nn.Module | Optimizer, tier: str = "normal", steps: int | None = None):
        if tier not in TIERS:
            raise ValueError(f"watch(): tier is {tier!r}; it is {', '.join(TIERS)}.")
        for subject in subjects:
            if not isinstance(subject, (nn.Module, Optimizer)):
                raise TypeError(f"watch(): takes models and optimizers, got {type(subject).__name__}.")
        if steps is not None and steps < 1:
            raise ValueError(f"watch(): steps is {steps}; it must be 1 or more.")
        self.tier, self.limit = tier, steps
        self.facts = Facts()
        self.models = [subject for subject in subjects if isinstance(subject, nn.Module)]
        self.given = [subject for subject in subjects if isinstance(subject, Optimizer)]
        self.instruments = Instruments(self)
        self.looking = False  # this cycle, from one step to the next, is looked at closely
        self.asleep = False  # this cycle is not looked at, but for its loss and evaluations
        self.inside = 0  # depth of module calls
        self.busy = False
        self.backward_depth = 0
        self.calls: list[dict] = []  # of this cycle
        self.scales: dict[int, tuple[Any, float]] = {}
        self.readable = True  # saved tensors may be read
        self.pending: list[tuple[int, Tensor]] = []  # losses on a device, read when it costs little
        self.sensitive: dict[int, bool] = {}
        self.bytes = 0
        self._pieces: list[dict] = []  # backward passes of this cycle
        self.summed: dict[int, float] = {}  # norms of some gradients as the last backward pass left them
        self.rescaled = 1.0  # by how much they were changed before the step
        self.residual = 0.0
        self.told = -1  # the step whose loss was last told
        self.old: tuple[int, list[Tensor], list[Tensor]] | None = None
        self._report: Any = None

    def __enter__(self) -> Watch:
        self.start = time.perf_counter()
        self.instruments.install()
        for optimizer in self.given:
            self._seen(optimizer)
        self.looking = True
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.instruments.remove()
        self.facts.seconds = time.perf_counter() - self.start
        self._flush()
        if self.calls:
            self._cycle_ends(None)
        if kind is not None and not issubclass(kind, (Enough, KeyboardInterrupt, SystemExit)):
            self.facts.raised = f"{kind.__name__}: {error}"

    def report(self):
        """What is wrong, by every rule; experiments run on copies, and random states are put back."""
        if self._report is None:
            from .rules import judge

            self._all_optimizers()
            self._report = judge(self.facts, self.tier)
        return self._report

    # Optimizers

    def _seen(self, optimizer: Optimizer) -> Seen:
        found = self.facts.optimizers.get(id(optimizer))
        if found is None:
            found = self.facts.optimizers[id(optimizer)] = Seen(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self.facts.slots:
                    self.facts.slots[id(parameter)] = Slot(parameter)
        return found

    def _all_optimizers(self) -> None:
        """Those that were never seen to step hold parameters too."""
        for thing in gc.get_objects():
            if issubclass(type(thing), Optimizer) and hasattr(thing, "param_groups"):
                self._seen(thing)

    @_guarded(always=True)
    def optimizer_built(self, optimizer, *_):
        if type(optimizer).__init__ is Optimizer.__init__ or hasattr(optimizer, "param_groups"):
            self._seen(optimizer).built = caller()

    @_guarded
    def optimizer_cleared(self, optimizer, *_):
        self._cleared(self._seen(optimizer))

    @_guarded
    def model_cleared(self, model, *_):
        ids = {id(parameter) for parameter in model.parameters()}
        for seen in self.facts.optimizers.values():
            if any(id(p) in ids for group in seen.optimizer.param_groups for p in group["params"]):
                self._cleared(seen)

    def _cleared(self, seen: Seen) -> None:
        seen.order += "Z"
        seen.zero_site = caller()
        slots = self.facts.slots
        for group in seen.optimizer.param_groups:
            for parameter in group["params"]:
                slot = slots.get(id(parameter))
                if slot is not None:
                    slot.tainted, slot.consumed = False, None

    @_guarded
    def scheduler_stepped(self, scheduler, *_):
        optimizer = getattr(scheduler, "optimizer", None)
        if getattr(scheduler, "_is_initial", False) or not isinstance(optimizer, Optimizer):
            return
        if in_library("load_state_dict"):
            return
        seen = self._seen(optimizer)
        seen.order += "T"
        seen.schedule_site = caller()
        if not self.facts.scaler and (seen.steps == 0 or ("B" in seen.order and seen.steps > 0)):
            seen.schedule_early += 1

    @_guarded
    def clipped(self, parameters, *_):
        if isinstance(parameters, Tensor):
            parameters = [parameters]
        ids = {id(parameter) for parameter in parameters}
        for seen in self.facts.optimizers.values():
            mine = [p for group in seen.optimizer.param_groups for p in group["params"] if id(p) in ids]
            if not mine:
                continue
            seen.clip_site = caller()
            seen.clips += 1
            if seen.steps and "B" not in seen.order:
                # Nothing new since the step: this gradient has been used.
                seen.clips_late += any(self._used(p) for p in mine)
            elif self.scales and not seen.unscaled:
                seen.clips_scaled.append(next(iter(self.scales.values()))[1])
            seen.order += "C"
            for slot in (self.facts.slots[id(p)] for p in mine):
                if slot.consumed is not None and slot.parameter.grad is not None:
                    # Still the gradient that was used, only smaller.
                    slot.consumed = (id(slot.parameter.grad), slot.parameter.grad._version + 1)

    def _used(self, parameter: Tensor) -> bool:
        slot, gradient = self.facts.slots[id(parameter)], parameter.grad
        return slot.consumed is not None and gradient is not None and slot.consumed[0] == id(gradient)

    @_guarded(always=True)
    def scaled(self, result, scaler, *_):
        if isinstance(result, Tensor) and scaler.is_enabled():
            self.facts.scaler = True
            self.scales = {id(result): (weakref.ref(result), float(scaler.get_scale()))}

    @_guarded
    def unscaled(self, scaler, optimizer, *_):
        self._seen(optimizer).unscaled = True

    @_guarded(always=True)
    def loader_started(self, loader, *_):
        try:
            rows, batches = len(loader.dataset), len(loader)
        except TypeError:
            return
        found = self.facts.loaders.setdefault(
            id(loader), {"loader": loader, "rows": rows, "batches": batches, "starts": 0, "site": caller()}
        )
        found["starts"] += 1

    @_guarded(always=True)
    def saved_elsewhere(self, *_):
        self.readable = False
        self.facts.note("activations are checkpointed or offloaded: what the graph holds was not read")

    # Forward

    def call(self, original, module, arguments, options):
        """A module is called: the outermost call is a model's, those inside are looked at now and then."""
        if self.inside:
            self.facts.called[id(module)] = module
            self.inside += 1
            try:
                return original(module, *arguments, **options)
            finally:
                self.inside -= 1
        record = self._before_call(module, arguments, options)
        self.inside = 1
        try:
            output = original(module, *arguments, **options)
        finally:
            self.inside = 0
        if record is not None:
            self._after_call(record, output)
        return output

    @_guarded(always=True)
    def _before_call(self, module, arguments, options):
        found = self.facts.models.get(id(module))
        if found is None:
            if next(module.parameters(), None) is None:
                return None
            found = self.facts.models[id(module)] = Calls(module)
            found.parameters = {id(parameter) for parameter in module.parameters()}
            self._name(module)
        if type(module).__name__ == "OptimizedModule":
            self.facts.note("the model is compiled: its inside was not looked at")
        gradients = torch.is_grad_enabled()
        if gradients and not found.copied and self.tier != "light":
            found.copied = True
            self._keep_initial(found)
        return {"calls": found, "gradients": gradients, "arguments": arguments, "options": options}

    def _name(self, module: nn.Module) -> None:
        several = sum(1 for calls in self.facts.models.values() if calls.model is not module) > 0
        prefix = f"{type(module).__name__}." if several else ""
        for name, parameter in module.named_parameters():
            self.facts.names.setdefault(id(parameter), prefix + name)

    def _keep_initial(self, found: Calls) -> None:
        parameters = list(found.model.parameters())
        if not any(p.requires_grad for p in parameters):
            return
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in parameters):
            found.copied = False  # not yet
            return
        if self.tier == "normal" and sum(p.numel() for p in parameters) > _LARGE:
            self.facts.note("the model is large: no copy was kept for experiments (--tier deep keeps one)")
            return
        if len([1 for calls in self.facts.models.values() if calls.initial is not None]) < 4:
            found.initial = copied(found.model)

    @_guarded(always=True)
    def _after_call(self, record, output):
        found: Calls = record["calls"]
        if not record["gradients"]:
            self._evaluated(found, record)
            return
        if self.looking or found.trainable is None:
            found.trainable = any(p.requires_grad for p in found.model.parameters())
        if not found.trainable:
            tensor, _ = graph.first_tensor(output)
            if tensor is None or not tensor.requires_grad:
                return
        for seen in self.facts.optimizers.values():
            if not seen.order.endswith("F"):
                seen.order += "F"
        keep = self.looking or len(self.calls) < 64
        if keep:
            kept = {
                "calls": found,
                "training": found.model.training,
                "arguments": _detached(record["arguments"]),
                "options": _detached(record["options"]),
                "output": _detached(output),
            }
            self.calls.append(kept)
        if self.looking or found.site == ("", 0):
            found.site = caller()

    def _evaluated(self, found: Calls, record) -> None:
        if in_library("update_bn"):
            return
        found.passes += 1
        found.row = found.row + 1 if found.row_step == self.facts.steps else 1
        found.row_step = self.facts.steps
        found.in_a_row = max(found.in_a_row, found.row)
        if found.model.training and self._sensitive(found.model):
            found.passes_in_train += 1
            found.pass_site = caller()
        rows = fingerprints(_first_input(record["arguments"], record["options"]))
        if rows is not None and len(self.facts.evaluated) < 4096:
            self.facts.evaluated.append(rows)

    def _sensitive(self, model: nn.Module) -> bool:
        """Whether training mode makes a difference."""
        if id(model) not in self.sensitive:
            self.sensitive[id(model)] = any(
                (isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0)
                or (isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats)
                or (isinstance(m, nn.MultiheadAttention) and m.dropout > 0)
                for m in model.modules()
            )
        return self.sensitive[id(model)]

    # Backward

    def before_backward(self, tensors=None, *_, **options):
        self.backward_depth += 1
        if self.backward_depth > 1:
            return None
        return self._before_backward(tensors if tensors is not None else options.get("tensors"))

    def after_backward(self, outer):
        self.backward_depth -= 1
        if self.backward_depth == 0 and outer is not None:
            self._after_backward(outer)

    @_guarded(always=True)
    def _before_backward(self, tensors):
        loss = tensors if isinstance(tensors, Tensor) else (tensors[0] if tensors else None)
        if self.asleep:
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
            if self.looking or self.facts.steps < 5:
                before = [gradient.detach().clone() for _, gradient, _ in stale]
        if loss is not None and loss.grad_fn is not None and loss.numel() == 1:
            self._loss(loss, site)
        return {"stale": stale, "before": before, "site": site}

    def _loss(self, loss: Tensor, site) -> None:
        facts = self.facts
        scale = self._scale(loss)
        value = loss.detach()
        if scale != 1.0:
            value = value / scale
        if not self._pieces:
            self._tell(value)
        if not self.looking:
            self._pieces.append({"site": site, "factor": None, "calls": len(self.calls)})
            return
        self._flush()
        apart = graph.take_apart(loss) if self.readable else graph.Loss()
        self._pieces.append(
            {
                "site": site,
                "factor": apart.factor / scale if apart.reduction == graph.MEAN else None,
                "calls": len(self.calls),
            }
        )
        mark = _Mark()
        loss.grad_fn.metadata["heedful"] = mark  # type: ignore[union-attr, index]
        facts.graphs.append((facts.steps, weakref.ref(mark)))
        made = [reference for step, reference in facts.graphs if step < facts.steps]
        facts.held.append((sum(reference() is not None for reference in made), len(made)))
        self._read(loss, apart, value, scale)

    def _scale(self, loss: Tensor) -> float:
        """By how much a gradient scaler has multiplied this loss."""
        reference, scale = self.scales.get(id(loss), (None, 1.0))
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
            self._find_bad()

    def _flush(self) -> None:
        pending, self.pending = self.pending, []
        for step, value in pending:
            self._value(step, float(value))

    def _find_bad(self) -> None:
        """Run a copy of the model again: which module is the first to put out something not finite?"""
        facts = self.facts
        for slot in facts.slots.values():
            if not bool(torch.isfinite(slot.parameter.detach()).all()):
                facts.bad_module, facts.bad_kind = facts.name(slot.parameter), "weight"
                return
        for record in self.calls[-1:]:
            if not _finite(record["arguments"]) or not _finite(record["options"]):
                facts.bad_module, facts.bad_kind = "the input", "input"
                return
            if _finite(record["output"]):
                facts.bad_module, facts.bad_kind = "the loss", "loss"
                return
            model = copied(record["calls"].model)
            if model is None:
                continue
            facts.bad_module = first_bad(model, record["arguments"], record["options"])
            facts.bad_kind = "module"

    def _read(self, loss: Tensor, apart: graph.Loss, value: Tensor, scale: float) -> None:
        """Everything the graph of a loss says."""
        facts = self.facts
        nodes = graph.walk(loss.grad_fn)
        facts.sizes.append(len(nodes))
        for node in nodes:
            variable = getattr(node, "variable", None)
            if isinstance(variable, nn.Parameter):
                facts.reached.setdefault(id(variable), variable)
        if not self.readable:
            return
        finite = math.isfinite(float(value))
        record = self.calls[-1] if self.calls else None
        output = graph.first_tensor(record["output"])[0] if record else None
        wrong = graph.softmax_before(apart)
        if wrong:
            facts.softmaxes[wrong] += 1
        facts.mixed = facts.mixed or graph.mixed_view(apart)
        facts.broadcast = facts.broadcast or graph.broadcast(apart, output)
        if apart.kind == "classes" and apart.target is not None:
            facts.classes = apart.classes
            counts = Counter(apart.target.flatten()[:4096].tolist())
            if apart.ignore is not None:
                counts.pop(apart.ignore, None)
            facts.labels.append(counts)
        if finite:
            self._activations(nodes)
        if record is None:
            return
        arguments, options = record["arguments"], record["options"]
        x = _first_input(arguments, options)
        rows = fingerprints(x)
        if rows is not None:
            facts.trained.update(rows)
            if len(self._pieces) == 1:
                facts.fingerprints.append(hash(tuple(rows)))
                facts.rows = len(rows)
                base = x._base if isinstance(x, Tensor) else None  # type: ignore[union-attr]
                if base is not None and base.dim() == x.dim() and base.shape[1:] == x.shape[1:]:  # type: ignore[union-attr]
                    facts.held_rows = max(facts.held_rows, len(base))
        if (
            x is not None
            and not x.is_floating_point()
            and x.dim() == 2
            and apart.target is not None
            and apart.target.numel() == x.numel()
            and x.shape[1] > 1
        ):
            later = apart.target.reshape(x.shape)
            facts.shifted = facts.shifted or bool((later[:, :-1] == x[:, 1:]).float().mean() > 0.95)
        size = _bytes(arguments) + _bytes(options)
        if len(facts.batches) < 16 and self.bytes + size < _BYTES and finite:
            self.bytes += size
            aim = graph.objective(
                value / apart.factor * scale if apart.factor else value, apart, record["output"]
            )
            facts.batches.append(
                Batch(
                    record["calls"].model,
                    _cloned(arguments),
                    _cloned(options),
                    aim,
                    float(value),
                    facts.steps,
                )
            )

    def _activations(self, nodes: list) -> None:
        facts = self.facts
        for place, (node, result) in enumerate(graph.relus(nodes)):
            where = f"{place}: {graph.nearest(node, facts.names)}"
            on = result > 0
            alive = on.movedim(graph.units_axis(node, on.dim()), 0).flatten(1).any(1)
            layer = facts.layers.get(where)
            if layer is None or len(layer.alive) != len(alive):
                layer = facts.layers[where] = Layer(where, alive)
            else:
                layer.alive = layer.alive | alive
            layer.samples += len(result)
        share = graph.saturations(nodes)
        if share is not None:
            facts.saturated = max(facts.saturated or 0.0, share)
        for place, (node, weights) in enumerate(graph.attentions(nodes)):
            heads = graph.entropy(weights)
            if heads is not None:
                where = f"{place}: {graph.nearest(node, facts.names)}"
                facts.entropies.setdefault(where, []).append((facts.steps, heads.tolist(), weights.shape[-1]))
        for place, (node, bottom) in enumerate(graph.normalisers(nodes)):
            size = bottom.abs()
            ratio = float(size.min() / size.median().clamp_min(1e-30))
            signs = bool((bottom > 0).any() and (bottom < 0).any())
            where = f"{place}: {graph.nearest(node, facts.names)}"
            before = facts.normalisers.get(where, (math.inf, False))
            facts.normalisers[where] = (min(before[0], ratio), before[1] or signs)

    @_guarded
    def _after_backward(self, outer):
        for seen in self.facts.optimizers.values():
            if seen.waiting and "F" not in seen.order:
                seen.early += 1  # this graph was built before the step
            seen.waiting = False
            seen.order += "B"
            seen.backward_site = outer["site"]
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

        if self.looking and len(self._pieces) > 1:
            some = [slot.parameter for slot in self.facts.slots.values() if slot.parameter.grad is not None]
            self.summed = {id(p): float(p.grad.norm()) for p in some[:8]}  # type: ignore[union-attr]

    # Step

    def before_step(self, optimizer, arguments, options):
        return self._before_step(optimizer, arguments, options)

    @_guarded
    def _before_step(self, optimizer, arguments, options):
        seen = self._seen(optimizer)
        seen.step_site = caller()
        closure = (
            options.get("closure") if "closure" in options else (arguments[1] if len(arguments) > 1 else None)
        )
        if closure is not None and callable(closure):
            seen.closure = True
            seen.judged += 1
            told = self._closure(closure, seen)
            if "closure" in options:
                return arguments, {**options, "closure": told}
            return (arguments[0], told, *arguments[2:]), options
        self._judge_order(seen)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        stale = [p for p in parameters if self.facts.slots[id(p)].tainted]
        if stale:
            seen.stale.append(self.residual)
        if self.looking:
            self._before_change(seen, parameters)
        return None

    def _closure(self, closure, seen: Seen):
        """The closure as it is, told apart from the one before: each evaluation needs clear gradients."""

        def told(*arguments, **options):
            self._closure_starts(seen)
            return closure(*arguments, **options)

        return told

    @_guarded
    def _closure_starts(self, seen: Seen):
        if any(
            self.facts.slots[id(p)].tainted for group in seen.optimizer.param_groups for p in group["params"]
        ):
            seen.stale.append(self.residual)
        self._consume(seen)
        self._pieces = []
        self.calls = []

    def _judge_order(self, seen: Seen) -> None:
        order = seen.order
        seen.judged += 1
        last = order.rfind("B")
        if last >= 0 and "Z" not in order[last:]:
            seen.waiting = order.rfind("F") > last
            return
        gradients = [
            p.grad for group in seen.optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        empty = not gradients or not any(float(norm) > 0 for norm in torch._foreach_norm(gradients))
        forward = order.rfind("F")
        if last >= 0:
            if empty:  # cleared after the backward pass; by whom, the forward pass tells
                if forward > last:
                    seen.early += 1
                else:
                    seen.cleared += 1
        elif forward >= 0 and (empty or seen.steps > 0):
            seen.early += 1

    def _before_change(self, seen: Seen, parameters: list[Tensor]) -> None:
        with_gradient = [p for p in parameters if p.grad is not None and not p.grad.is_sparse]
        norms = torch._foreach_norm([p.grad.detach() for p in with_gradient]) if with_gradient else []  # type: ignore[union-attr]
        for parameter, norm in zip(with_gradient, norms, strict=True):
            slot = self.facts.slots[id(parameter)]
            slot.norm = max(slot.norm, float(norm))
        for parameter, norm in zip(with_gradient, norms, strict=True):
            if self.summed.get(id(parameter)) and "C" not in seen.order and not self.facts.scaler:
                self.rescaled = float(norm) / self.summed[id(parameter)]
                break
        self.old = (id(seen.optimizer), with_gradient, [p.detach().clone() for p in with_gradient])

    def _changed(self, seen: Seen) -> None:
        if self.old is None or self.old[0] != id(seen.optimizer):
            return
        _, parameters, before = self.old
        self.old = None
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

    def _consume(self, seen: Seen) -> None:
        for group in seen.optimizer.param_groups:
            for parameter in group["params"]:
                slot, gradient = self.facts.slots[id(parameter)], parameter.grad
                if gradient is not None:
                    slot.consumed = (id(gradient), gradient._version)

    def after_step(self, optimizer, arguments, options):
        self._after_step(optimizer)
        if self.limit is not None and self.facts.steps >= self.limit:
            raise Enough

    @_guarded(always=True)
    def _after_step(self, optimizer):
        facts = self.facts
        seen = facts.optimizers.get(id(optimizer)) or self._seen(optimizer)
        seen.steps += 1
        if not self.asleep:
            self._changed(seen)
            self._consume(seen)
            seen.order, seen.unscaled = "", False
            self._cycle_ends(seen)
        if seen.steps > facts.steps:  # with several optimizers, a round ends with the first to step again
            facts.steps = seen.steps
            self._next()

    def _next(self) -> None:
        """Whether the coming cycle is looked at; before each look one is followed, so that it has a past."""
        steps, usual = self.facts.steps, self.tier != "light"
        if self.tier == "deep":
            asleep, looking = False, True
        elif steps < _FOLLOWED:
            asleep, looking = False, steps in _ALWAYS and (usual or steps < 5)
        elif usual and (steps in _ALWAYS or steps + 1 in _ALWAYS):
            asleep, looking = False, steps in _ALWAYS
        elif self.asleep:
            asleep = self.facts.own > TIERS[self.tier] * (time.perf_counter() - self.start)
            looking = False
        else:
            asleep, looking = self.looking, not self.looking
        if self.asleep and not asleep:
            self._wake()
        self.asleep, self.looking = asleep, looking
        self.facts.looks += looking

    def _wake(self) -> None:
        """What happened while asleep is not known: begin afresh."""
        self.calls, self._pieces, self.scales, self.old = [], [], {}, None
        for seen in self.facts.optimizers.values():
            seen.order, seen.waiting, seen.unscaled = "", False, False
            self._consume(seen)
        for slot in self.facts.slots.values():
            slot.tainted = False

    def _cycle_ends(self, seen: Seen | None) -> None:
        """From one step to the next: what was called, in what mode, and how gradients were put together."""
        facts = self.facts
        mine = (
            {id(p) for group in seen.optimizer.param_groups for p in group["params"]}
            if seen is not None
            else set()
        )
        trained: dict[int, list[bool]] = {}
        for record in self.calls:
            calls: Calls = record["calls"]
            if calls.parameters & mine:
                trained.setdefault(id(calls.model), []).append(record["training"])
        for key, modes in trained.items():
            calls = facts.models[key]
            calls.training_steps += 1
            calls.training_in_eval += not any(modes) and self._sensitive(calls.model)
        pieces = self._pieces
        if seen is not None and len(pieces) > 1 and self.looking:
            site, count = Counter(piece["site"] for piece in pieces).most_common(1)[0]
            same = [piece for piece in pieces if piece["site"] == site]
            separate = len({piece["calls"] for piece in same}) == count
            if count > 1 and count == len(pieces) and separate and all(p["factor"] is not None for p in same):
                seen.groups.append((count, sum(p["factor"] for p in same) * self.rescaled))
        self.calls, self._pieces = [], []
        self.scales, self.summed, self.rescaled = {}, {}, 1.0


def bare(model: nn.Module) -> nn.Module:
    """Without what compiling and distributing wrap around it."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def copied(model: nn.Module) -> nn.Module | None:
    """A copy that shares nothing; None where the model does not allow it."""
    try:
        found = copy.deepcopy(bare(model))
    except Exception:
        return None
    for parameter in found.parameters():
        parameter.grad = None
    return found


def first_bad(model: nn.Module, arguments: tuple, options: dict) -> str:
    """The first module whose output is not finite while its input is."""
    from .twins import undisturbed

    found: list[str] = []
    handles = []

    def hook(name):
        def check(module, inputs, output):
            if not found and not _finite(output) and _finite(inputs):
                found.append(name)

        return check

    for name, module in model.named_modules():
        if not next(module.children(), None):
            handles.append(module.register_forward_hook(hook(name or type(module).__name__)))
    with undisturbed(), torch.no_grad():
        model(*arguments, **options)
    for handle in handles:
        handle.remove()
    return found[0] if found else type(model).__name__


MOST_WORDS = 1 << 14  # of a sample that are looked at: 128 kB


def fingerprints(x: Tensor | None) -> list[int] | None:
    """A number for each sample, equal where all its bits are; samples of under eight numbers have none."""
    if x is None or x.dim() < 2 or len(x) == 0 or x.is_sparse or x.is_nested or x.is_complex():
        return None
    rows = x.detach().reshape(len(x), -1)
    if rows.shape[1] < 8:
        return None
    words = _words(rows.contiguous())
    if words.shape[1] > MOST_WORDS:
        words = words[:, :: words.shape[1] // MOST_WORDS]
    place = torch.arange(1, words.shape[1] + 1, device=words.device, dtype=torch.int64)
    weight = place * 0x9E3779B97F4A7C1 ^ (place * 0x2545F4914F6CDD1D)  # odd mixing, no random numbers
    mixed = (words + 1) * 0x2127599BF4325C37  # not linear: pictures of few colours must not add up alike
    return ((mixed ^ (mixed >> 29)) * weight).sum(1).tolist()


def _words(rows: Tensor) -> Tensor:
    """The same bits, eight bytes a number where the width allows."""
    rows = rows.view(torch.uint8) if rows.dtype != torch.bool else rows.to(torch.uint8)
    return rows.view(torch.int64) if rows.shape[1] % 8 == 0 else rows.long()


def _first_input(arguments: tuple, options: dict) -> Tensor | None:
    for entry in (*arguments, *options.values()):
        if isinstance(entry, Tensor):
            return entry
    return None


def _map(function, thing):
    if isinstance(thing, Tensor):
        return function(thing)
    if isinstance(thing, tuple):
        made = [_map(function, entry) for entry in thing]
        return type(thing)(*made) if hasattr(thing, "_fields") else tuple(made)
    if isinstance(thing, list):
        return [_map(function, entry) for entry in thing]
    if isinstance(thing, dict):
        try:
            return type(thing)({key: _map(function, entry) for key, entry in thing.items()})
        except Exception:
            return {key: _map(function, entry) for key, entry in thing.items()}
    return thing


def _detached(thing):
    return _map(lambda tensor: tensor.detach() if tensor.requires_grad else tensor, thing)


def _cloned(thing):
    return _map(lambda tensor: tensor.detach().clone(), thing)


def _bytes(thing) -> int:
    total = []
    _map(lambda tensor: total.append(tensor.numel() * tensor.element_size()), thing)
    return sum(total)


def _finite(thing) -> bool:
    found = []
    _map(lambda t: found.append(not t.is_floating_point() or bool(torch.isfinite(t).all())), thing)
    return all(found)


def watch(*subjects: nn.Module | Optimizer, tier: str = "normal") -> Watch:
    """Observe the training of these models and optimizers: `with watch(model, optimizer) as seen: ...`.

    Models and optimizers that are not named are found when they are used. `tier` is "light" (1 % of the run's
    time goes into looking, after the first steps), "normal" (4 %) or "deep" (every step is looked at).
    """
    return Watch(*subjects, tier=tier)
