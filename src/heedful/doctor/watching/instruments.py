"""Where torch is listened to: a dozen functions wrapped while a watch is on, and put back after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Instruments:
    """Wrappers that tell listeners what happens, and change nothing of it."""

    def __init__(self, watch: Any):
        self.watch = watch
        self.before: list[tuple[Any, str, Any]] = []
        self.handles: list[Any] = []

    def install(self) -> None:
        heard = self.watch
        self._call(heard)
        self._wrap(torch.autograd, "backward", _around(heard.backward, "before", "after"))
        self._wrap(Optimizer, "zero_grad", _then(heard.steps, "optimizer_cleared"))
        self._wrap(Optimizer, "__init__", _then(heard.steps, "optimizer_built"))
        self._wrap(nn.Module, "zero_grad", _then(heard.steps, "model_cleared"))
        for kind in {lr_scheduler.LRScheduler, *_below(lr_scheduler.LRScheduler)}:
            if "step" in vars(kind):
                self._wrap(kind, "step", _first(heard.steps, "scheduler_stepped"))
        clip = torch.nn.utils.clip_grad
        self._wrap(clip, "_clip_grads_with_norm_", _listed(heard.steps, "clipped"))
        for place in (clip, torch.nn.utils):
            self._wrap(place, "clip_grad_value_", _listed(heard.steps, "clipped"))
        self._wrap(torch.amp.GradScaler, "scale", _result(heard.steps, "scaled"))
        self._wrap(torch.amp.GradScaler, "unscale_", _then(heard.steps, "unscaled"))
        self._wrap(torch.utils.data.DataLoader, "__iter__", _first(heard.forward, "loader_started"))
        self._wrap(
            torch.autograd.graph.saved_tensors_hooks, "__enter__", _first(heard.forward, "saved_elsewhere")
        )
        self.handles = [
            register_optimizer_step_pre_hook(heard.steps.before),
            register_optimizer_step_post_hook(heard.steps.after),
        ]

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        for owner, name, original in reversed(self.before):
            setattr(owner, name, original)
        self.before, self.handles = [], []

    def _wrap(self, owner: Any, name: str, wrapper: Callable) -> None:
        original = vars(owner)[name]
        self.before.append((owner, name, original))
        setattr(owner, name, functools.wraps(original)(wrapper(original)))

    def _call(self, heard: Any) -> None:
        original: Callable = nn.Module.__call__
        compiling, gradients = torch.compiler.is_compiling, torch.is_grad_enabled
        self.before.append((nn.Module, "__call__", vars(nn.Module)["__call__"]))

        def call(module, *arguments, **options):
            # Inside a model, and nothing to be looked at: one comparison.
            if (
                heard.busy
                or (heard.inside and not heard.looking)
                or (heard.asleep and gradients())
                or compiling()
            ):
                return original(module, *arguments, **options)
            return heard.forward.call(original, module, arguments, options)

        setattr(nn.Module, "__call__", call)  # noqa: B010


def _below(kind: type) -> set[type]:
    children: list[type] = kind.__subclasses__()
    return {entry for child in children for entry in (child, *_below(child))}


def _around(heard, before: str, after: str):
    def wrap(original):
        def function(*arguments, **options):
            outer = getattr(heard, before)(*arguments, **options)
            try:
                return original(*arguments, **options)
            finally:
                getattr(heard, after)(outer)

        return function

    return wrap


def _then(heard, name: str):
    """Told after it happened."""

    def wrap(original):
        def function(*arguments, **options):
            result = original(*arguments, **options)
            getattr(heard, name)(*arguments)
            return result

        return function

    return wrap


def _first(heard, name: str):
    """Told before it happens."""

    def wrap(original):
        def function(*arguments, **options):
            getattr(heard, name)(*arguments)
            return original(*arguments, **options)

        return function

    return wrap


def _listed(heard, name: str):
    """Told before it happens, of parameters that may come from a generator, which can be read but once."""

    def wrap(original):
        def function(parameters, *arguments, **options):
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)
            getattr(heard, name)(parameters)
            return original(parameters, *arguments, **options)

        return function

    return wrap


def _result(heard, name: str):
    """Told with what came out."""

    def wrap(original):
        def function(*arguments, **options):
            result = original(*arguments, **options)
            getattr(heard, name)(result, *arguments)
            return result

        return function

    return wrap
