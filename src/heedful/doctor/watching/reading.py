"""What a graph and its batch say, written down: targets, activations, samples, the first bad value."""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor, nn

from .. import graph
from ..copies import copied
from ..facts import Batch, Layer
from .listening import Listener
from .samples import cloned, fingerprint, fingerprints, finite, first_bad, first_input, size_of, widened

_BYTES = 64 * 2**20  # of batches kept


class Reading(Listener):
    """Told of every loss that is looked at, before its graph is gone."""

    def __init__(self, watch):
        super().__init__(watch)
        self.bytes = 0

    def find_bad(self) -> None:
        """Run a copy of the model again: which module is the first to put out something not finite?"""
        facts = self.facts
        for slot in facts.slots.values():
            if not bool(torch.isfinite(slot.parameter.detach()).all()):
                facts.bad_module, facts.bad_kind = facts.name(slot.parameter), "weight"
                return
        for record in self.watch.cycle.calls[-1:]:
            if not finite(record["arguments"]) or not finite(record["options"]):
                facts.bad_module, facts.bad_kind = "the input", "input"
                return
            if finite(record["output"]):
                tensor, _ = graph.first_tensor(record["output"])
                huge = tensor is not None and float(tensor.abs().max()) > 1e10
                facts.bad_module, facts.bad_kind = "the loss", "size" if huge else "loss"
                return
            model = copied(record["calls"].model)
            if model is None:
                continue
            facts.bad_module = first_bad(model, record["arguments"], record["options"])
            facts.bad_kind = "module"

    def read(self, loss: Tensor, apart: graph.Loss, value: Tensor, scale: float) -> None:
        """Everything the graph of a loss says."""
        facts = self.facts
        nodes = graph.walk(loss.grad_fn)
        facts.sizes.append(len(nodes))
        for node in nodes:
            variable = getattr(node, "variable", None)
            if isinstance(variable, nn.Parameter):
                facts.reached.setdefault(id(variable), variable)
        if not self.watch.readable:
            return
        finite = math.isfinite(float(value))
        record = self.watch.cycle.calls[-1] if self.watch.cycle.calls else None
        output = graph.first_tensor(record["output"])[0] if record else None
        wrong = graph.softmax_before(apart)
        if wrong:
            facts.softmaxes.setdefault(wrong, set()).add(facts.steps)
        facts.mixed = facts.mixed or graph.mixed_view(apart)
        facts.broadcast = facts.broadcast or graph.broadcast(apart, output, loss.grad_fn)
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
        x = first_input(arguments, options)
        if x is not None and x.dim() > 1 and not facts.crossed:
            facts.crossed = graph.crossed_view(nodes, len(x))
        rows = fingerprints(x)
        if rows is not None:
            facts.trained.update(rows)
        whole = fingerprint(x)
        if x is not None and whole is not None and len(self.watch.cycle.pieces) == 1:
            facts.fingerprints.append(whole)
            facts.rows = len(x)
            base = x._base
            if base is not None and base.dim() == x.dim() and base.shape[1:] == x.shape[1:]:
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
        size = size_of(arguments) + size_of(options)
        if len(facts.batches) < 16 and self.bytes + size < _BYTES and finite:
            self.bytes += size
            aim = graph.objective(
                value / apart.factor * scale if apart.factor else value, apart, record["output"]
            )
            facts.batches.append(
                Batch(
                    record["calls"].model,
                    widened(cloned(arguments), record["calls"].model),
                    widened(cloned(options), record["calls"].model),
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
                if where not in facts.entropies:
                    facts.widths[where.partition(": ")[2]] = graph.spread(node) or 0.0
                facts.entropies.setdefault(where, []).append((facts.steps, heads.tolist(), weights.shape[-1]))
        for place, (node, bottom) in enumerate(graph.normalisers(nodes)):
            size = bottom.abs()
            ratio = float(size.min() / size.median().clamp_min(1e-30))
            signs = bool((bottom > 0).any() and (bottom < 0).any())
            where = f"{place}: {graph.nearest(node, facts.names)}"
            before = facts.normalisers.get(where, (math.inf, False))
            facts.normalisers[where] = (min(before[0], ratio), before[1] or signs)
