"""Models as they are called: which, in what mode, with what; and a copy of each as it was at the start."""

from __future__ import annotations

import torch
from torch import nn

from .. import graph
from ..copies import copied
from ..facts import Calls
from ..source import caller, in_library, variable
from .listening import Listener, guarded, marked
from .samples import continuous, detached, fingerprints, first_input

_LARGE = 30_000_000  # numbers of a model that is copied without being asked


class Forward(Listener):
    """Told of every call of a module."""

    def __init__(self, watch):
        super().__init__(watch)
        self._sensitive: dict[int, bool] = {}

    def loader_started(self, loader, *_):
        try:
            rows, batches = len(loader.dataset), len(loader)
        except TypeError:
            return
        found = self.facts.loaders.setdefault(
            id(loader), {"loader": loader, "rows": rows, "batches": batches, "starts": 0, "site": caller()}
        )
        found["starts"] += 1

    @guarded(always=True)
    def saved_elsewhere(self, *_):
        self.watch.readable = False
        self.facts.note("activations are checkpointed or offloaded: what the graph holds was not read")

    def call(self, original, module, arguments, options):
        """A module is called: the outermost call is a model's, those inside are looked at now and then."""
        if self.watch.inside:
            self.facts.called[id(module)] = module
            self.watch.inside += 1
            try:
                return original(module, *arguments, **options)
            finally:
                self.watch.inside -= 1
        record = self._before_call(module, arguments, options)
        self.watch.inside = 1
        try:
            output = original(module, *arguments, **options)
        finally:
            self.watch.inside = 0
        if record is not None:
            self._after_call(record, output)
        return output

    @guarded(always=True)
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
        if gradients and not found.copied and self.watch.tier != "light":
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
        if self.watch.tier == "normal" and sum(p.numel() for p in parameters) > _LARGE:
            self.facts.note("the model is large: no copy was kept for experiments (--tier deep keeps one)")
            return
        if len([1 for calls in self.facts.models.values() if calls.initial is not None]) < 4:
            found.initial = copied(found.model)

    @guarded(always=True)
    def _after_call(self, record, output):
        found: Calls = record["calls"]
        if not record["gradients"]:
            self._evaluated(found, record)
            return
        if self.watch.looking or found.trainable is None:
            found.trainable = any(p.requires_grad for p in found.model.parameters())
        if not found.trainable:
            tensor, _ = graph.first_tensor(output)
            if tensor is None or not tensor.requires_grad:
                return
        for seen in self.facts.optimizers.values():
            if not seen.order.endswith("F"):
                seen.order += "F"
        keep = self.watch.looking or len(self.watch.cycle.calls) < 64
        if keep:
            kept = {
                "calls": found,
                "training": found.model.training,
                "arguments": detached(record["arguments"]),
                "options": detached(record["options"]),
                "output": detached(output),
            }
            self.watch.cycle.calls.append(kept)
        if self.watch.looking:
            tensor, _ = graph.first_tensor(output)
            if tensor is not None and tensor.grad_fn is not None:
                self.facts.outputs.append((self.facts.steps, marked(tensor)))
        if self.watch.looking or found.site == ("", 0):
            found.site = caller()
            found.name = found.name or variable(found.model)

    def _evaluated(self, found: Calls, record) -> None:
        if in_library("update_bn"):
            return
        found.passes += 1
        found.row = found.row + 1 if found.row_step == self.facts.steps else 1
        found.row_step = self.facts.steps
        found.in_a_row = max(found.in_a_row, found.row)
        if found.model.training and self.sensitive(found.model):
            found.passes_in_train += 1
            found.pass_site = caller()
            found.pass_name = found.pass_name or variable(found.model)
        x = first_input(record["arguments"], record["options"])
        rows = fingerprints(x)
        if rows is not None and x is not None and len(self.facts.evaluated) < 4096:
            self.facts.evaluated.append(rows)
            self.facts.continuous = self.facts.continuous and continuous(x)

    def sensitive(self, model: nn.Module) -> bool:
        """Whether training mode makes a difference."""
        if id(model) not in self._sensitive:
            self._sensitive[id(model)] = any(
                (isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0)
                or (isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats)
                or (isinstance(m, nn.MultiheadAttention) and m.dropout > 0)
                for m in model.modules()
            )
        return self._sensitive[id(model)]
