"""Leaks: who hears whom that should not."""

from . import kind

kind(
    "causal-leak",
    "leak",
    "serious",
    "The future leaks into the past",
    "The loss is too good to be true; generated text is nonsense.",
    "largest gradient of an output with respect to a later input, over the largest of all",
    "exactly 0",
    "An output that does not depend on later inputs has an exactly zero gradient from them.",
    "The mask is missing, off by one, or on the wrong axis; or something mixes positions beside attention.",
    "Mask keys after the query; check norms and pooling over positions.",
    "`is_causal=True` or a mask where attention has none, a triangle made narrower by one, a norm "
    "over features alone. None for convolutions and bidirectional layers: other shapes follow from "
    "it.",
)
kind(
    "batch-leak",
    "leak",
    "serious",
    "Samples of a batch see each other",
    "Results depend on what else is in the batch, in evaluation too.",
    "largest gradient of a sample's output with respect to another sample, over its own",
    "exactly 0",
    "An output that does not depend on another sample has an exactly zero gradient from it.",
    "A reshape, softmax, norm or attention runs over the batch's axis.",
    "Find the module named here; batch_first=True where batches come first.",
    "`batch_first=True`, or a softmax over the last axis in place of the batch.",
)
kind(
    "train-test-overlap",
    "leak",
    "serious",
    "Evaluation samples are training samples",
    "Validation is as good as training and the real thing is not.",
    "share of evaluation samples that training has seen, bit for bit",
    "0",
    "Distinct samples of eight numbers, or of three that are real, do not agree in every bit; sets of few "
    "different numbers whose own samples repeat are not judged. One in a hundred rules out a few duplicates "
    "in the source.",
    "The split overlaps: slices or indices are not disjoint, or samples were repeated before the split.",
    "Split once, by disjoint indices, before anything is repeated or augmented.",
    "None: how to split is its author's decision. The number is exact: samples equal in every bit.",
)
kind(
    "not-equivariant",
    "leak",
    "serious",
    "The order of the input matters where it should not",
    "A model of sets or graphs depends on how nodes are numbered.",
    "‖f(Px) − P f(x)‖ / ‖f(x)‖ for a random permutation P",
    "below 1e-4",
    "Reordering sums changes float32 results by about 1e-6.",
    "Positions, a recurrent layer or a flatten depend on the order.",
    "Remove what depends on the order.",
    "None: what should take the place of the order is a choice of the model's author.",
)
