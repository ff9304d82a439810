"""One optimizer step: θ ← optimizer(θ, clip(Σ_b (n_b / n) ∇ loss(θ, b))) over the batches b of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .distribution import Group
from .precision import Precision

Found = Mapping[str, Any]
Loss = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Found]"]


class Step:
    """Takes steps, and returns what each measured: its samples, the loss, and what the loss function adds."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: Optimizer,
        *,
        clip: float | None,
        precision: Precision,
        schedule: LRScheduler | None,
        samples: Callable[[Any], float],
        group: Group,
    ):
        self.model, self.loss, self.optimizer, self.clip = model, loss, optimizer, clip
        self.precision, self.samples, self.group = precision, samples, group
        self.schedule = None if isinstance(schedule, ReduceLROnPlateau) else schedule
        self.parameters = [p for part in optimizer.param_groups for p in part["params"]]
        # Elsewhere, looking at a number means to wait for it.
        self.look = self.parameters[0].device.type == "cpu"

    def __call__(self, window: list, place: str) -> tuple[float, Found]:
        taken = self.computed(window, place)
        self.move_on()
        return taken

    def move_on(self) -> None:
        """What comes after a step and is Python's: the schedule."""
        if self.schedule is not None:
            self.schedule.step()

    def computed(self, window: list, place: str) -> tuple[float, Found]:
        """The step but for `move_on`."""
        counts = [self.samples(batch) for batch in window]
        total = float(sum(counts))
        if not self.group.alone:
            total = self.group.sum(torch.tensor(total, device=self.parameters[0].device)).item()
        if not total > 0:
            raise ValueError(f"train: {place} has {total:g} samples; it needs some.")
        shares = [count / total for count in counts]
        if isinstance(self.optimizer, LBFGS):
            tried: list[tuple[Tensor, dict[str, Any]]] = []

            def again() -> Tensor:
                tried.append(self._gradient(window, shares, place))
                return tried[-1][0]

            self.optimizer.step(again)  # type: ignore[arg-type]
            found = tried[0][1]
        else:
            _, found = self._gradient(window, shares, place)
            self._apply(found)
        return total, found

    def _gradient(self, window: list, shares: list[float], place: str) -> tuple[Tensor, dict[str, Any]]:
        """Σ_b (n_b / n) ∇ loss(b) into the parameters; the same mean of the loss and of what goes with it."""
        self.optimizer.zero_grad(set_to_none=True)
        scaler = self.precision.scaler
        means: dict[str, Any] = {}
        for place_in_step, (batch, share) in enumerate(zip(window, shares, strict=True), 1):
            with self._without_sending(place_in_step < len(window)):
                with self.precision():
                    value, found = parted(self.loss(self.model, batch))
                if not value.requires_grad:
                    raise ValueError(
                        "train: the loss does not depend on the parameters: no gradient can flow from it. "
                        "Was it computed under no_grad, detached, or through .item()?"
                    )
                if self.look and not math.isfinite(value.item()):
                    raise not_finite(value.item(), place, self.optimizer)
                # Torch's wrappers take the mean over the processes; the shares add up to 1 over all of them.
                factor = share * self.group.ranks
                part = value if factor == 1 else value * factor
                (part if scaler is None else scaler.scale(part)).backward()
            numbers = {"loss": value.detach(), **found}
            for name, number in numbers.items():
                number = number.detach() if isinstance(number, Tensor) else number
                number = number if share == 1 else number * share
                means[name] = number if name not in means else means[name] + number
        if not self.group.alone:
            like: dict[str, Any] = {"dtype": torch.float32, "device": value.device}
            joint = torch.stack([torch.as_tensor(number, **like) for number in means.values()])
            means = dict(zip(means, self.group.sum(joint).unbind(), strict=True))
        return means["loss"], means

    def _apply(self, found: dict[str, Any]) -> None:
        scaler = self.precision.scaler
        if self.clip is not None:
            if scaler is not None:
                scaler.unscale_(self.optimizer)  # the norm to be clipped is that of the true gradient
            norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
            found["gradient_norm"] = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()

    def _without_sending(self, more: bool) -> AbstractContextManager:
        """Processes exchange gradients once a step, at its last batch."""
        if more and isinstance(self.model, nn.parallel.DistributedDataParallel):
            return self.model.no_sync()
        if not self.group.alone and hasattr(self.model, "set_requires_gradient_sync"):
            self.model.set_requires_gradient_sync(not more)  # type: ignore[operator]
        return nullcontext()


def parted(result: Any) -> tuple[Tensor, Found]:
    """What a loss function returned, as (loss, other numbers)."""
    value, found = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(value, Tensor) or value.numel() != 1 or not isinstance(found, Mapping):
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{result!r:.80}"
        raise TypeError(
            f"train: loss(model, batch) returned {shape}; it must be one number, the mean over the batch, "
            f"as a tensor, or that and a dictionary."
        )
    found = {name: number for name, number in found.items() if name != "loss"}  # that is the loss itself
    return value if value.dim() == 0 else value.reshape(()), found


def not_finite(value: float, place: str, optimizer: Optimizer) -> FloatingPointError:
    rates = sorted({float(part["lr"]) for part in optimizer.param_groups if "lr" in part})
    rate = f" ({', '.join(f'{rate:g}' for rate in rates)} now)" if rates else ""
    return FloatingPointError(
        f"train: the loss is {value} at {place}. Lower the learning rate{rate}, clip the gradient "
        f"(clip=1.0), or look for a logarithm or a division of 0: torch.autograd.set_detect_anomaly(True) "
        f"names the operation."
    )
