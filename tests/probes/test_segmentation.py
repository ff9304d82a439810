"""Segmentation scores against scikit-learn and scikit-image, on labels of any kind."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, jaccard_score, pair_confusion_matrix

from heedful import probes

metrics = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed")
measure = pytest.importorskip("skimage.measure")


def pairs(seed):
    """Masks of any size and density, alike, unlike, full and empty."""
    generator = torch.Generator().manual_seed(seed)
    for share in (0.0, 0.02, 0.3, 0.6, 0.95, 1.0):
        shape = tuple((5 + 40 * torch.rand(2, generator=generator)).int().tolist())
        truth = (torch.rand(shape, generator=generator) < share).long()
        flipped = torch.rand(shape, generator=generator) < 0.2
        yield torch.where(flipped, 1 - truth, truth), truth
        yield (torch.rand(shape, generator=generator) < 0.5).long(), truth
        yield truth, truth


def test_overlap_is_scikit_learns(seed):
    for predicted, truth in pairs(seed):
        mine, theirs = predicted.flatten().numpy(), truth.flatten().numpy()
        empty = {"zero_division": 1.0}
        assert probes.pixel_error(predicted, truth) == pytest.approx(
            1 - accuracy_score(theirs, mine), abs=1e-12
        )
        assert probes.dice(predicted, truth) == pytest.approx(f1_score(theirs, mine, **empty))
        assert probes.iou(predicted, truth) == pytest.approx(jaccard_score(theirs, mine, **empty))
        assert probes.dice(predicted.bool(), truth.bool()) == probes.dice(predicted, truth)


def test_segments_are_scikit_images(seed):
    for mask, _ in pairs(seed):
        theirs = torch.from_numpy(measure.label(mask.numpy(), connectivity=1)).long()
        assert torch.equal(probes.segments(mask), theirs)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_rand_error_is_scikit_images(seed):
    generator = torch.Generator().manual_seed(seed)
    shown = 0
    for predicted, truth in pairs(seed):
        cells, true_cells = probes.segments(predicted), probes.segments(truth)
        for mine, theirs in [
            (cells, true_cells),
            (torch.randint(6, truth.shape, generator=generator), true_cells),
            (cells, torch.randint(4, truth.shape, generator=generator)),
        ]:
            if theirs.max() > 0:
                expected, *_ = metrics.adapted_rand_error(theirs.numpy(), mine.numpy())
                if expected == expected:  # it divides by zero where no two pixels share a segment
                    assert probes.rand_error(mine, theirs) == pytest.approx(expected, abs=1e-12)
                    shown += 1
    assert shown > 20


def test_rand_error_counts_pairs(seed):
    """From scikit-learn's table of pairs: 2 · together / (in one + in the other)."""
    generator = torch.Generator().manual_seed(seed)
    mine, theirs = torch.randint(1, 7, (2, 300), generator=generator)
    (_, only_mine), (only_theirs, both) = pair_confusion_matrix(theirs.numpy(), mine.numpy())
    expected = 1 - 2 * both / (2 * both + only_mine + only_theirs)
    assert probes.rand_error(mine, theirs) == pytest.approx(expected)


def test_a_gap_is_a_small_error_of_pixels_and_a_large_one_of_cells():
    truth = torch.ones(20, 41, dtype=torch.long)
    truth[:, 20] = 0
    gap = truth.clone()
    gap[7, 20] = 1
    assert probes.pixel_error(gap, truth) < 0.002
    assert probes.rand_error(probes.segments(gap), probes.segments(truth)) > 0.3


def test_where_there_is_nothing_to_count():
    nothing, one = torch.zeros(2, 2, dtype=torch.long), torch.tensor([[1, 0], [0, 2]])
    assert probes.rand_error(one, nothing) == 0
    assert probes.rand_error(one, one) == 0
    assert (probes.dice(nothing, nothing), probes.iou(nothing, nothing)) == (1, 1)


@pytest.mark.parametrize("score", [probes.pixel_error, probes.dice, probes.iou, probes.rand_error])
def test_wrong_labels_are_named(score):
    with pytest.raises(ValueError, match=rf"{score.__name__}\(\): predicted has shape \(2,\), truth \(3,\)"):
        score(torch.zeros(2, dtype=torch.long), torch.zeros(3, dtype=torch.long))
    with pytest.raises(TypeError, match="float32 and int64; it takes classes"):
        score(torch.zeros(2), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="no pixels"):
        score(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="height, width"):
        probes.segments(torch.zeros(2, 2, 2))
