"""How far a segmentation is from the truth: by pixels, by overlap, and by which pixels belong together."""

from __future__ import annotations

import torch
from torch import Tensor


def pixel_error(predicted: Tensor, truth: Tensor) -> float:
    """The share of pixels put into another class.

    >>> pixel_error(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]))
    0.25
    """
    _alike("pixel_error", predicted, truth)
    return float((predicted != truth).double().mean())


def dice(predicted: Tensor, truth: Tensor) -> float:
    """2 |A ∩ B| / (|A| + |B|) of the pixels that are not zero in either; 1 where both are empty.

    >>> dice(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]))
    0.8
    """
    both, one, other = _counts("dice", predicted, truth)
    return 2 * both / (one + other) if one + other else 1.0


def iou(predicted: Tensor, truth: Tensor) -> float:
    """|A ∩ B| / |A ∪ B|, intersection over union; 1 where both are empty.

    >>> iou(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1])) == 2 / 3
    True
    """
    both, one, other = _counts("iou", predicted, truth)
    return both / (one + other - both) if one + other else 1.0


def segments(mask: Tensor) -> Tensor:
    """The connected regions of a mask (height, width), numbered from 1; 0 where it is zero.

    Pixels are connected by their sides, not by their corners.

    >>> segments(torch.tensor([[1, 0, 1], [1, 0, 0]]))
    tensor([[1, 0, 2],
            [1, 0, 0]])
    """
    from scipy.ndimage import label

    if mask.dim() != 2:
        raise ValueError(f"segments(): mask has shape {tuple(mask.shape)}; it is (height, width).")
    numbered, _ = label((mask != 0).cpu().numpy())
    return torch.from_numpy(numbered).long()


def rand_error(predicted: Tensor, truth: Tensor) -> float:
    """1 − 2PR/(P + R), where P and R count pairs of pixels: the adapted Rand error of the ISBI challenge.

    Both hold numbers of segments. Of the pairs that share a segment in `predicted`, P share one in `truth`;
    of those that share one in `truth`, R do in `predicted`. Pixels where truth is 0, borders, do not count.
    It minds what pixel errors hide: a gap of one pixel in a membrane makes one cell of two.

    >>> rand_error(torch.tensor([1, 1, 2, 2]), torch.tensor([5, 5, 7, 7]))
    0.0
    >>> round(rand_error(torch.tensor([1, 1, 1, 1]), torch.tensor([5, 5, 7, 7])), 3)
    0.5
    """
    _alike("rand_error", predicted, truth)
    counted = truth != 0
    _, mine = predicted[counted].unique(return_inverse=True)
    _, theirs = truth[counted].unique(return_inverse=True)
    if not mine.numel():
        return 0.0
    together = _pairs(mine * (int(theirs.max()) + 1) + theirs)
    in_either = _pairs(mine) + _pairs(theirs)
    return 1 - 2 * together / in_either if in_either else 0.0


def _pairs(segment: Tensor) -> int:
    """How many pairs of pixels share a segment."""
    sizes = segment.unique(return_counts=True)[1]
    return int((sizes * (sizes - 1)).sum()) // 2


def _counts(name: str, predicted: Tensor, truth: Tensor) -> tuple[int, int, int]:
    _alike(name, predicted, truth)
    one, other = predicted != 0, truth != 0
    return int((one & other).sum()), int(one.sum()), int(other.sum())


def _alike(name: str, predicted: Tensor, truth: Tensor) -> None:
    if predicted.shape != truth.shape:
        raise ValueError(
            f"{name}(): predicted has shape {tuple(predicted.shape)}, truth {tuple(truth.shape)}; "
            f"there must be one for each pixel of the other."
        )
    if predicted.is_floating_point() or truth.is_floating_point():
        kinds = f"{predicted.dtype} and {truth.dtype}".replace("torch.", "")
        raise TypeError(
            f"{name}(): got {kinds}; it takes classes, whole numbers or booleans. Round them first."
        )
    if not predicted.numel():
        raise ValueError(f"{name}(): there are no pixels.")
