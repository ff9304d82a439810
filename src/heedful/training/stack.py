"""Many models of one architecture as one: each parameter is (seeds, *shape), and a call is a vmap over
seeds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..kernels import batching
from . import randomness, snapshot
from .streams import Streams

# Their updates go number by number, so that a stack of parameters is updated as its parts would be.
ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.ASGD,
)


class Unstackable(ValueError):
    """Why an experiment cannot be run stacked; it can always be run one seed after another."""


class Stack:
    """Models of one architecture, and the random streams they draw from.

    Args:
        models: one a seed, alike but for the numbers in their parameters and buffers.
        streams: of their random numbers.
        running: the buffers training changes; others are stacked only if they differ between the models.
        together: let all draw from torch's generator, at once. No seed then gets what it would draw alone,
            but the draws are independent still, and can be recorded as a CUDA graph.
    """

    def __init__(
        self, models: list[nn.Module], streams: Streams, running: set[str], *, together: bool = False
    ):
        self.together = together
        self.model = copy.deepcopy(models[0])  # whose tensors are replaced by each seed's in turn
        self.streams, self.running = streams, sorted(running)
        _check_alike(models)
        learned = dict(models[0].named_parameters())
        kept = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in models]
        self.tensors: dict[str, Tensor] = {}  # (seeds, *shape)
        for name, first in kept[0].items():
            if (
                name in running
                or (name in learned and first.requires_grad)
                or any(not _same(first, other[name]) for other in kept[1:])
            ):
                stacked = torch.stack([other[name].detach() for other in kept])
                self.tensors[name] = stacked.requires_grad_(name in learned and first.requires_grad)
        self._holders, self._first = _holders(self.model)

    def __len__(self) -> int:
        return len(self.streams)

    def __call__(self, function: Callable, batch: Any = None, dims: Any = None) -> Any:
        """function(model, batch) for every seed, stacked; `dims` says where the batch has a dimension of
        seeds.
        """

        def inside(index, tensors, batch):
            drawing = nullcontext() if self.together else self.streams.within(index)
            with self._holding(tensors), drawing:
                found = function(self.model, batch)
                return found, {name: self._held(name) for name in self.running}

        index, how = torch.arange(len(self)), "different" if self.together else "error"
        stacked = batching.vmap(inside, (0, 0, dims), count=len(self), randomness=how)
        found, after = stacked(index, self.tensors, batch)
        self.tensors |= after
        return found

    def optimizer(self, recipe: Callable[[nn.Module], Optimizer], like: nn.Module) -> Optimizer:
        """The optimizer the recipe makes for one model, holding the stacks instead."""
        optimizer = recipe(like)
        if type(optimizer) not in ELEMENTWISE:
            raise Unstackable(
                f"{type(optimizer).__name__} mixes the numbers of a parameter, so stacks cannot be updated "
                f"as one; those that can: {', '.join(kind.__name__ for kind in ELEMENTWISE)}."
            )
        names = {id(parameter): name for name, parameter in like.named_parameters()}
        for part in optimizer.param_groups:
            stacks = []
            for parameter in part["params"]:
                name = names.get(id(parameter))
                if name is None:
                    raise Unstackable("the optimizer holds a tensor that is not a parameter of the model.")
                state = optimizer.state.pop(parameter, None)
                if name not in self.tensors:
                    continue  # frozen, and the same in all
                stacks.append(self.tensors[name])
                if state:
                    optimizer.state[stacks[-1]] = {
                        key: value.expand(len(self), *value.shape).clone()
                        if _like(value, parameter)
                        else value
                        for key, value in state.items()
                    }
            part["params"] = stacks
            if part.get("fused", 0) is None and part.get("foreach") is None:
                # Torch's choice for single parameters; for stacks of them, one pass over memory is faster.
                part["fused"] = all(stack.is_floating_point() for stack in stacks)
        return optimizer

    def keep(self, which: list[int], optimizer: Optimizer) -> None:
        """Go on with these seeds only."""
        index = torch.tensor(which)
        replaced = {}
        for name, stacked in self.tensors.items():
            part = stacked.detach()[index.to(stacked.device)].requires_grad_(stacked.requires_grad)
            replaced[id(stacked)] = self.tensors[name] = part
        for group in optimizer.param_groups:
            for place, stacked in enumerate(group["params"]):
                part = group["params"][place] = replaced[id(stacked)]
                state = optimizer.state.pop(stacked, None)
                if state is not None:
                    optimizer.state[part] = {
                        key: value[index.to(value.device)] if _like(value, stacked) else value
                        for key, value in state.items()
                    }
        self.streams.keep(which)

    def weights(self, place: int) -> dict[str, Any]:
        """All that one seed's model holds, under the names it would have alone."""
        found = {}
        for name, alone in snapshot.weights_of(self.model).items():
            stacked = self.tensors.get(self._first.get(name, name))
            value = alone if stacked is None else stacked[place]
            found[name] = value.detach().clone() if isinstance(value, Tensor) else value
        return found

    @contextmanager
    def _holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        before = [(held, key, held[key]) for name in tensors for held, key in self._holders[name]]
        try:
            for name, tensor in tensors.items():
                for held, key in self._holders[name]:
                    held[key] = tensor
            yield
        finally:
            for held, key, tensor in before:
                held[key] = tensor

    def _held(self, name: str) -> Tensor:
        held, key = self._holders[name][0]
        return held[key]


def changed_by(
    model: nn.Module, function: Callable[[nn.Module], Any], generators: dict[str, Any]
) -> set[str]:
    """The buffers that function(model), called with the `generators` in this state, changes; the model is
    not.

    Randomness of numpy's or Python's cannot be given to each seed under vmap, so it is refused.
    """
    trial = copy.deepcopy(model)
    before = {name: (buffer, buffer.clone()) for name, buffer in trial.named_buffers()}
    randomness.restore(generators)
    function(trial)
    after = randomness.capture()
    for name in ("python", "numpy"):
        if name in after and name in generators and not _equal(after[name], generators[name]):
            raise Unstackable(f"the loss draws random numbers from {name}, not from torch.")
    return {
        name
        for name, buffer in trial.named_buffers()
        if name not in before or buffer is not before[name][0] or not _same(buffer, before[name][1])
    }


def _holders(model: nn.Module) -> tuple[dict[str, list[tuple[dict, str]]], dict[str, str]]:
    """Where modules keep each tensor, by its first name; and the first name of each name, for some are
    shared.
    """
    places: dict[str, list[tuple[dict, str]]] = {}
    first: dict[int, str] = {}
    for prefix, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for key, tensor in held.items():
                if tensor is not None:
                    name = first.setdefault(id(tensor), f"{prefix}.{key}" if prefix else key)
                    places.setdefault(name, []).append((held, key))
    named = model.state_dict(keep_vars=True)
    return places, {name: first[id(tensor)] for name, tensor in named.items() if id(tensor) in first}


def _check_alike(models: list[nn.Module]) -> None:
    """What is no tensor of the state must not depend on the seed: all seeds go through one module's code."""

    def layers(model: nn.Module) -> list:
        return [(name, type(part)) for name, part in model.named_modules()]

    def shapes(model: nn.Module) -> list:
        return [(name, parameter.shape) for name, parameter in model.named_parameters()]

    first = models[0]
    for model in models[1:]:
        if layers(model) != layers(first):
            raise Unstackable("the models of two seeds differ in their layers.")
        if shapes(model) != shapes(first):
            raise Unstackable("the models of two seeds differ in the shapes of their parameters.")
        for (name, part), other in zip(first.named_modules(), model.modules(), strict=True):
            for key in vars(part).keys() - {"_parameters", "_buffers", "_modules"}:
                if not _equal(vars(part)[key], vars(other).get(key)):
                    raise Unstackable(
                        f"{f'{name}.' * bool(name)}{key} differs from seed to seed, but is neither a "
                        f"parameter nor a buffer; register it."
                    )


def _equal(a: Any, b: Any) -> bool:
    """Whether two attributes hold the same numbers; of what holds none (functions, objects) nothing is
    said.
    """
    if isinstance(a, nn.Parameter):
        return True  # it is registered, or it could not be trained
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _same(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    simple = (bool, int, float, str, type(None))
    return a == b if isinstance(a, simple) and isinstance(b, simple) else True


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b)))


def _like(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape and value.dim() > 0
