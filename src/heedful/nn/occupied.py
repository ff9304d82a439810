"""Convolutions over images that are mostly zero: only where there is something.

    y(i) = relu(Σ_m w_m x(s·i + m − p)) = 0   wherever all x under the window are 0

Without a bias, what is zero stays zero, layer after layer. So a batch is kept as the rows (channels) of its
places that are not zero; a convolution gathers those under each window that sees any, and is one product with
w. Which places those are depends on the images alone, not on the weights: it is found once.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .convolution import Conv2d, pad


class Occupied:
    """Images (N, channels, H, W) by their pixels that are not zero, ready for these layers.

    Args:
        images: of which most pixels are zero in all channels; otherwise this costs more than it saves.
        layers: convolutions without bias and without groups or dilation, and ReLUs, in the order they will be
            gone through; only their shapes, strides and padding are looked at.

    `through(layers)` is what `layers(images)` is, to rounding, and so are the gradients of the weights. The
    images themselves get none.

    >>> images = torch.zeros(2, 3, 16, 16)
    >>> images[:, :, 4:7, 9:12] = torch.rand(2, 3, 3, 3)
    >>> layers = nn.Sequential(Conv2d(3, 8, 3, bias=False), nn.ReLU(), Conv2d(8, 4, 3, stride=2, bias=False))
    >>> torch.allclose(Occupied(images, layers).through(layers), layers(images), atol=1e-6)
    True
    """

    def __init__(self, images: Tensor, layers: Iterable[nn.Module]):
        there = (images != 0).any(1)
        self.rows = images.permute(0, 2, 3, 1)[there]  # (pixels, channels)
        self.windows: list[tuple[Tensor, Tensor]] = []
        places = _numbered(there)  # (N, H, W), from 1, 0 where nothing is
        for layer in layers:
            if isinstance(layer, nn.ReLU):
                continue
            if not isinstance(layer, Conv2d) or not _plain(layer):
                raise ValueError(
                    f"Occupied: got {layer}; takes Conv2d without bias, groups and dilation, and ReLU."
                )
            before = int((places > 0).sum())
            # As numbers, for torch pads no integers; a double counts places exactly.
            padded = pad(places.unsqueeze(1).double(), layer.pads, layer.mode)
            height, width = (
                (extent - kernel) // stride + 1
                for extent, kernel, stride in zip(
                    padded.shape[2:], layer.kernel_size, layer.stride, strict=True
                )
            )
            seen = F.unfold(padded, layer.kernel_size, stride=layer.stride).mT.long()  # (N, windows, taps)
            hears = (seen > 0).any(-1)
            table = seen[hears]  # (windows that hear something, taps)
            self.windows.append((table, _heard_by(table, before)))
            places = _numbered(hears).view(-1, height, width)
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def through(self, layers: Iterable[nn.Module]) -> Tensor:
        """What the layers make of the images, (N, channels, H, W)."""
        rows, windows = self.rows, iter(self.windows)
        for layer in layers:
            if isinstance(layer, nn.ReLU):
                rows = rows.relu()
            else:
                assert isinstance(layer.weight, Tensor)
                weight = layer.weight.permute(2, 3, 1, 0).flatten(0, 2)  # (taps · inputs, outputs)
                rows, _ = _Gathered.apply(rows, weight, *next(windows))
        return _with_nothing(rows)[self.places].permute(0, 3, 1, 2)


class _Gathered(torch.autograd.Function):
    """y_w = Σ_t x_{table(w, t)} W_t;   ∇x_i = Σ over the (w, t) that heard i of ∇y_w W_tᵀ, gathered, too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, table, heard_by):
        columns = _with_nothing(x)[table.flatten()].view(len(table), weight.shape[0])
        return columns @ weight, columns

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, weight, table, heard_by = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], weight, heard_by)
        ctx.taps = table.shape[1]

    @staticmethod
    def backward(ctx, gradient, _):
        columns, weight, heard_by = ctx.saved_tensors
        back = None
        if ctx.needs_input_grad[0]:
            taps = _with_nothing((gradient @ weight.mT).view(-1, weight.shape[0] // ctx.taps))
            back = taps[heard_by[:, 0]]
            for column in heard_by.unbind(1)[1:]:
                back = back + taps[column]
        return back, columns.mT @ gradient, None, None


def _plain(layer: Conv2d) -> bool:
    return layer.bias is None and layer.groups == 1 and set(layer.dilation) == {1}


def _with_nothing(rows: Tensor) -> Tensor:
    """Row 0 is that of a place where nothing is."""
    return torch.cat([rows.new_zeros(1, rows.shape[1]), rows])


def _numbered(there: Tensor) -> Tensor:
    """1, 2, … where something is, 0 elsewhere."""
    return there.flatten().cumsum(0).view(there.shape) * there


def _heard_by(table: Tensor, count: int) -> Tensor:
    """For every row, the (window, tap) pairs it is gathered for, from 1; filled up with 0."""
    taps = table.flatten()
    order = torch.argsort(taps, stable=True)
    order = order[taps[order] > 0]
    rows = taps[order] - 1
    times = torch.bincount(rows, minlength=count)
    place = torch.arange(len(rows), device=rows.device) - (times.cumsum(0) - times)[rows]
    most = max(1, int(times.max())) if count else 1
    found = torch.zeros(count, most, dtype=torch.long, device=rows.device)
    found[rows, place] = order + 1
    return found
