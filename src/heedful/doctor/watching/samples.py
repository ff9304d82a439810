"""Inputs and outputs of any shape: taken apart, compared, and told from one another by a number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..copies import undisturbed


def first_bad(model: nn.Module, arguments: tuple, options: dict) -> str:
    """The first module whose output is not finite while its input is."""
    found: list[str] = []
    handles = []

    def hook(name):
        def check(module, inputs, output):
            if not found and not finite(output) and finite(inputs):
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
    """A number for each sample, equal where all its bits are; samples of few numbers have none."""
    if x is None or x.dim() < 2 or len(x) == 0 or x.is_sparse or x.is_nested or x.is_complex():
        return None
    rows = x.detach().reshape(len(x), -1)
    if rows.shape[1] < 8 and not (rows.shape[1] > 2 and continuous(rows)):
        return None
    words = _words(rows.contiguous())
    if words.shape[1] > MOST_WORDS:
        words = words[:, :: words.shape[1] // MOST_WORDS]
    place = torch.arange(1, words.shape[1] + 1, device=words.device, dtype=torch.int64)
    weight = place * 0x9E3779B97F4A7C1 ^ (place * 0x2545F4914F6CDD1D)  # odd mixing, no random numbers
    mixed = (words + 1) * 0x2127599BF4325C37  # not linear: pictures of few colours must not add up alike
    return ((mixed ^ (mixed >> 29)) * weight).sum(1).tolist()


def fingerprint(x: Tensor | None) -> int | None:
    """A number for a whole batch; of few words a batch may come again by chance, and has none."""
    rows = None if x is None or x.dim() == 0 else fingerprints(x.detach().reshape(1, -1))
    return rows[0] if rows is not None and x is not None and x.numel() >= 64 else None


def continuous(x: Tensor) -> bool:
    """Whether samples are made of numbers that hardly ever agree in one place: two that do are one."""
    if not x.is_floating_point():
        return False
    some = torch.unique(x.detach()[:64].flatten(1)[:, :16], dim=0).sort(0).values
    return bool((some[1:] != some[:-1]).float().mean() > 0.9) if len(some) > 1 else False


def _words(rows: Tensor) -> Tensor:
    """The same bits, eight bytes a number where the width allows."""
    rows = rows.view(torch.uint8) if rows.dtype != torch.bool else rows.to(torch.uint8)
    return rows.view(torch.int64) if rows.shape[1] % 8 == 0 else rows.long()


def first_input(arguments: tuple, options: dict) -> Tensor | None:
    for entry in (*arguments, *options.values()):
        if isinstance(entry, Tensor):
            return entry
    return None


def map_tensors(function, thing):
    if isinstance(thing, Tensor):
        return function(thing)
    if isinstance(thing, tuple):
        made = [map_tensors(function, entry) for entry in thing]
        return type(thing)(*made) if hasattr(thing, "_fields") else tuple(made)
    if isinstance(thing, list):
        return [map_tensors(function, entry) for entry in thing]
    if isinstance(thing, dict):
        try:
            return type(thing)({key: map_tensors(function, entry) for key, entry in thing.items()})
        except Exception:
            return {key: map_tensors(function, entry) for key, entry in thing.items()}
    return thing


def detached(thing):
    return map_tensors(lambda tensor: tensor.detach() if tensor.requires_grad else tensor, thing)


def cloned(thing):
    return map_tensors(lambda tensor: tensor.detach().clone(), thing)


def widened(thing, model: nn.Module):
    """As wide as the model's weights: under autocast a part may get halves, and its copy runs without."""
    wide = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return map_tensors(lambda t: t.to(wide) if t.dtype in (torch.bfloat16, torch.float16) else t, thing)


def size_of(thing) -> int:
    total = []
    map_tensors(lambda tensor: total.append(tensor.numel() * tensor.element_size()), thing)
    return sum(total)


def finite(thing) -> bool:
    found = []
    map_tensors(lambda t: found.append(not t.is_floating_point() or bool(torch.isfinite(t).all())), thing)
    return all(found)
