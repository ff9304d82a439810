"""What can be wrong with a training run: every finding with its number, threshold and reason."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["serious", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")


@dataclass(frozen=True)
class Kind:
    """A finding as its page describes it: the number, what is healthy, why that threshold, cause and fix."""

    name: str
    family: Literal["loop", "signal", "leak"]
    severity: Severity
    title: str
    symptom: str
    measures: str
    healthy: str
    reason: str
    cause: str
    fix: str
    explains: tuple[str, ...] = ()  # findings that follow from this one, and are told with it


KINDS: dict[str, Kind] = {}


def _kind(*details, **options) -> None:
    kind = Kind(*details, **options)
    KINDS[kind.name] = kind


@dataclass
class Place:
    """A line of somebody's file."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class Finding:
    """One thing that is wrong: how bad, where, the number beside its healthy range, cause, patch, proof."""

    name: str
    measured: float | None
    what: str
    severity: Severity = "serious"
    where: str = ""
    place: Place | None = None
    cause: str = ""
    patch: str = ""
    proof: str = ""
    consequences: list[str] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        number = self.measured
        found["measured"] = number if number is None or math.isfinite(number) else str(number)
        found["healthy"] = self.kind.healthy
        return found

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Finding:
        found = {key: entry for key, entry in found.items() if key != "healthy"}
        if found["place"] is not None:
            found["place"] = Place(**found["place"])
        if isinstance(found["measured"], str):
            found["measured"] = float(found["measured"])
        return cls(**found)


def finding(name: str, measured: float | None, what: str, **options) -> Finding:
    """A finding of a known kind, with the kind's severity and cause unless told otherwise."""
    kind = KINDS[name]
    return Finding(name, measured, what, **{"severity": kind.severity, "cause": kind.cause, **options})


# Loop

_kind(
    "gradients-not-cleared",
    "loop",
    "serious",
    "Gradients are not cleared",
    "The loss falls fast at first, then swings or grows; a smaller learning rate only delays it.",
    "‖p.grad − fresh‖ / ‖fresh‖ at the step: what was left of steps already taken, over the new gradient",
    "0",
    "A cleared gradient leaves exactly nothing, so any residual above rounding (1e-6) is an old gradient.",
    "backward() adds to p.grad; nothing clears it after the step, so step t follows the sum of all "
    "gradients so far.",
    "Call optimizer.zero_grad() once a step, before backward().",
    explains=(
        "learning-rate-too-high",
        "loss-spike",
        "update-too-large",
        "non-finite",
        "cannot-overfit",
        "dead-units",
        "exploding-gradients",
    ),
)
_kind(
    "accumulation-not-divided",
    "loop",
    "serious",
    "Accumulated gradients are not divided",
    "Training with accumulation behaves as if the learning rate were multiplied by the number of pieces.",
    "size of the accumulated gradient over that of one batch of all pieces",
    "1",
    "k mean losses add up to k times the mean of all; the ratio is read off the graph, so 1.5 is far from "
    "rounding and below the smallest mistake, 2.",
    "Each piece's loss is a mean, and the means are added, not averaged.",
    "Divide the loss by the number of pieces: (loss / k).backward().",
    explains=("learning-rate-too-high", "loss-spike", "update-too-large", "non-finite"),
)
_kind(
    "accumulation-divided-twice",
    "loop",
    "serious",
    "Accumulated gradients are divided twice",
    "Training with accumulation behaves as if the learning rate were divided by the number of pieces.",
    "size of the accumulated gradient over that of one batch of all pieces",
    "1",
    "Dividing k losses by k twice leaves 1/k; 1/1.5 is far from rounding and above the largest mistake, 1/2.",
    "The loss is divided by the number of pieces in two places (say, in the loop and in the loss).",
    "Divide once.",
    explains=("learning-rate-too-low",),
)
_kind(
    "batchnorm-under-accumulation",
    "loop",
    "warning",
    "BatchNorm under accumulation",
    "Accumulating k small batches trains worse than one batch k times as large.",
    "angle between the accumulated gradient and that of one batch of all pieces, degrees",
    "below 10",
    "Without BatchNorm the angle is 0 to rounding; at 10° a sixth of the gradient's length (sin 10°) "
    "points elsewhere.",
    "BatchNorm normalises each piece by the piece's own mean and variance: another function, another "
    "gradient.",
    "Use GroupNorm or LayerNorm, or larger pieces.",
)
_kind(
    "zero-grad-before-step",
    "loop",
    "serious",
    "Gradients are cleared between backward() and step()",
    "The loss does not move at all.",
    "share of steps taken with no gradient",
    "0",
    "A step without gradients changes nothing; half of the steps and at least two rule out an accident.",
    "zero_grad() stands between backward() and step().",
    "Move zero_grad() before backward(), or after step().",
    explains=(
        "learning-rate-too-low",
        "parameter-never-updated",
        "gradient-never-arrives",
        "step-before-backward",
        "cannot-overfit",
        "same-batch-every-step",
    ),
)
_kind(
    "step-before-backward",
    "loop",
    "serious",
    "The optimizer steps before backward()",
    "The loss does not move, or each step follows the previous batch's gradient, or torch complains of an "
    "inplace operation.",
    "share of steps with no backward() since the step before",
    "0",
    "Every step needs a gradient of its own; half of the steps and at least two rule out an accident.",
    "step() is called before backward().",
    "Move step() behind backward().",
    explains=(
        "learning-rate-too-low",
        "parameter-never-updated",
        "gradient-never-arrives",
        "zero-grad-before-step",
        "gradients-not-cleared",
        "cannot-overfit",
    ),
)
_kind(
    "scheduler-before-optimizer",
    "loop",
    "warning",
    "The scheduler steps before the optimizer",
    "The schedule's first value is never used; warm-ups start one step late.",
    "scheduler steps taken before the optimizer's first, or between backward() and step()",
    "0",
    "The order is exact, so one is enough.",
    "scheduler.step() stands before optimizer.step().",
    "Call scheduler.step() behind optimizer.step().",
)
_kind(
    "parameters-missing-from-optimizer",
    "loop",
    "serious",
    "Parameters are missing from the optimizer",
    "Part of the model stays at its initial values.",
    "share of the numbers that get a gradient and that no optimizer holds",
    "0",
    "A gradient that nobody uses is either a mistake or work for nothing; frozen parameters do not get one.",
    "Layers were added after the optimizer was built, are kept in a plain list, or were left out of its "
    "groups.",
    "Give the optimizer all parameters, or freeze those that are to stay: p.requires_grad_(False).",
    explains=("gradient-never-arrives", "parameter-never-updated", "learning-rate-too-low"),
)
_kind(
    "parameter-never-updated",
    "loop",
    "serious",
    "Parameters are stepped and never change",
    "Part of the model, or all of it, stays at its initial values although it has gradients.",
    "largest relative change of the parameter over all steps looked at",
    "above 0",
    "A gradient above 0 and a learning rate above 0 change a parameter; exactly 0 change in at least three "
    "steps looked at is not rounding.",
    "The learning rate of its group is 0, or is too small for the numbers' precision.",
    "Give its group a learning rate; keep float32 master weights when training in half precision.",
    explains=("learning-rate-too-low", "cannot-overfit"),
)
_kind(
    "gradient-never-arrives",
    "loop",
    "serious",
    "No gradient reaches a parameter",
    "Part of the model stays at its initial values.",
    "norm of the parameter's gradient, largest over all steps looked at",
    "above 0",
    "A parameter whose module ran in every step looked at and that got no gradient in any is cut off.",
    "Something between it and the loss cuts the graph: detach(), .data, .item(), argmax, no_grad, numpy.",
    "Remove the cut, or freeze the parameter: p.requires_grad_(False).",
    explains=("parameter-never-updated", "cannot-overfit"),
)
_kind(
    "eval-mode-in-training",
    "loop",
    "serious",
    "The model trains in evaluation mode",
    "Dropout is off and BatchNorm uses old statistics: over-fitting, or a loss that does not fall.",
    "share of training steps looked at whose forward passes all ran in evaluation mode",
    "0",
    "Training in evaluation mode on purpose keeps single layers in it, not the whole model; two steps "
    "rule out an accident.",
    "model.eval() was called for an evaluation and model.train() not after it, or never.",
    "Call model.train() at the start of every epoch.",
    explains=("learning-rate-too-high",),
)
_kind(
    "train-mode-in-evaluation",
    "loop",
    "warning",
    "The model is evaluated in training mode",
    "Evaluation is noisy and too pessimistic; BatchNorm learns the test set's statistics.",
    "share of forward passes without gradients that ran in training mode, dropout or BatchNorm in the model",
    "0",
    "Half of the evaluation passes: passes of one step among many (a generator's samples, a teacher) are "
    "left out.",
    "model.eval() is missing before the evaluation.",
    "model.eval() before, model.train() after.",
)
_kind(
    "graph-kept-alive",
    "loop",
    "serious",
    "The graph is kept alive",
    "Memory grows with every step until it runs out; steps get slower.",
    "share of past steps whose graph is still held, or growth of the graph from first to last step looked at",
    "0; at most one graph at a time",
    "A loop that lets go holds the newest graph only; eight in ten of the last steps held means it never "
    "does.",
    "A loss is summed or appended with its graph, or a state is carried from step to step without detach().",
    "Keep numbers: total += loss.item(); hidden = hidden.detach().",
)
_kind(
    "clip-after-step",
    "loop",
    "serious",
    "Gradients are clipped after the step",
    "Clipping has no effect; losses spike as if it were not there.",
    "share of clippings that came after their gradient's step",
    "0",
    "The order is exact; at least two clippings and nine in ten of them rule out an accident.",
    "clip_grad_norm_ stands behind optimizer.step().",
    "Clip between backward() and step().",
    explains=("loss-spike",),
)
_kind(
    "clip-of-scaled-gradients",
    "loop",
    "serious",
    "Gradients are clipped while scaled",
    "With mixed precision, training is slow or stands still.",
    "the scaler's factor on the gradients when they were clipped",
    "1",
    "Clipping compares the norm with its bound; any factor but 1 compares another norm.",
    "clip_grad_norm_ is called before scaler.unscale_(optimizer).",
    "Call scaler.unscale_(optimizer) before clipping.",
    explains=("learning-rate-too-low",),
)
_kind(
    "non-finite",
    "loop",
    "serious",
    "Values are not finite",
    "The loss is nan or inf.",
    "first step whose loss is not finite",
    "none",
    "A loss that is not finite has no use; steps that a gradient scaler skips do not count.",
    "A division by zero, the logarithm of zero, an overflow, or a step far too large.",
    "Look at the module named here; lower the learning rate where weights overflowed first.",
    explains=(
        "loss-spike",
        "update-too-large",
        "cannot-overfit",
        "gradient-never-arrives",
        "dead-units",
        "loss-at-init",
        "parameter-never-updated",
        "exploding-gradients",
        "vanishing-gradients",
        "attention-saturated",
        "same-batch-every-step",
        "learning-rate-too-low",
    ),
)
_kind(
    "same-batch-every-step",
    "loop",
    "serious",
    "Every step sees the same batch",
    "The loss falls to zero in no time; the test set does not improve.",
    "share of the data at hand that training looks at",
    "1",
    "The batch is the same in every step although the loader or tensor it comes from holds at least four "
    "times as much.",
    "next(iter(loader)) starts the loader anew at every step, or a slice's bounds do not move.",
    "Loop over the loader: for x, y in loader.",
)
_kind(
    "not-shuffled",
    "loop",
    "warning",
    "The data is not shuffled",
    "The loss jumps up and down in waves; the model forgets the classes it has not seen for a while.",
    "share of the labels' entropy that lies between batches, not within them",
    "below 0.5",
    "Shuffled batches of n labels in k classes leave about (k − 1)/2n nats between them, which is taken "
    "off; sorted ones all.",
    "The data is sorted by class and the loader does not shuffle.",
    "DataLoader(..., shuffle=True).",
    explains=("loss-spike", "learning-rate-too-high"),
)
_kind(
    "view-mixes-axes",
    "loop",
    "serious",
    "A view mixes axes on the way to the loss",
    "The loss falls slowly and never far: most predictions are compared with other places' labels.",
    "size of the axis of classes, which the view cut through",
    "the classes stay together",
    "Read off the graph: a tensor with classes in axis 1 was viewed as (…, classes) without moving that "
    "axis to the end.",
    "view/reshape keeps the order of numbers in memory; it does not transpose.",
    "logits.movedim(1, -1).reshape(-1, classes), or give cross_entropy (N, classes, …) as it is.",
    explains=("cannot-overfit", "learning-rate-too-low"),
)
_kind(
    "loss-broadcast",
    "loop",
    "serious",
    "Predictions and targets are broadcast against each other",
    "The loss falls to the targets' variance and stays: the model learns the mean.",
    "numbers the loss averages over, for each prediction",
    "1",
    "(N, 1) − (N,) is (N, N): N for each prediction, read off the graph; N is at least 2.",
    "Predictions have shape (N, 1), targets (N,), and every prediction is compared with every target.",
    "Give both one shape: prediction.squeeze(-1), or target.unsqueeze(-1).",
    explains=("cannot-overfit", "learning-rate-too-low", "loss-at-init", "update-too-large"),
)

# Signal

_kind(
    "vanishing-gradients",
    "signal",
    "serious",
    "Gradients vanish with depth",
    "The first layers do not learn; deeper nets are worse than shallow ones, in training too.",
    "gradient of the first layers' outputs over that of the last layers', at the start",
    "above 1e-3",
    "Eight layers with torch's default weights have 5e-3 and train; at 1e-3 the first layers move at "
    "a thousandth of the speed. The first half must share in it: one small last layer is no depth.",
    "Each layer shrinks the gradient: saturated activations, weights too small, or depth without skips.",
    "Skips around blocks, He or orthogonal initial weights, ReLU or GELU in place of sigmoids.",
    explains=(
        "learning-rate-too-low",
        "cannot-overfit",
        "dead-units",
        "gradient-never-arrives",
        "parameter-never-updated",
    ),
)
_kind(
    "exploding-gradients",
    "signal",
    "serious",
    "Gradients explode with depth",
    "Deep nets train worse than shallow ones, jump or overflow, though each layer is normalised.",
    "gradient of the first layers' outputs over that of the last layers', at the start",
    "below 100",
    "Residual nets of 20 and of 56 layers have 4 to 6, plain ones of 20 layers 10; plain ones of 56 have "
    "900, and train "
    "worse than those of 20.",
    "Each layer enlarges the gradient: weights too large, or normalised layers in depth without skips.",
    "Skips around blocks, smaller initial weights.",
    explains=("learning-rate-too-high", "loss-at-init", "loss-spike", "update-too-large"),
)
_kind(
    "dead-units",
    "signal",
    "warning",
    "Units are dead",
    "Part of a layer puts out zero for every input and gets no gradient.",
    "share of a layer's ReLU units that no sample looked at turns on",
    "below 0.5",
    "At the start a unit is off for all of 128 samples with a chance of 2⁻¹²⁸ when inputs are centred; "
    "losing half "
    "a layer is beyond what trained sparse nets show.",
    "A large step or a large negative bias pushed them where their inputs never reach.",
    "A lower learning rate, He initial weights, zero biases, leaky ReLU or GELU.",
    explains=("gradient-never-arrives", "learning-rate-too-low"),
)
_kind(
    "update-too-large",
    "signal",
    "warning",
    "Updates are large against the weights",
    "Each step throws away what was learned.",
    "‖Δw‖ / ‖w‖ of a step, median over weight matrices and steps looked at",
    "below 0.3",
    "About 1e-3 is usual and 1e-1 brave; at 0.3 every few steps replace the weights. Tiny models may bear "
    "it, so the loss must not fall either.",
    "The learning rate is too high for the weights' size.",
    "Lower the learning rate, or warm it up.",
)
_kind(
    "learning-rate-too-high",
    "signal",
    "serious",
    "The learning rate is too high",
    "The loss grows, or jumps about above where it began.",
    "loss of the last quarter over the first loss",
    "below 1.2",
    "Noise of batches moves medians of a quarter of the run by less than a fifth of the first loss; and "
    "the same "
    "batches must do better with a tenth or a hundredth of the rate.",
    "Steps overshoot.",
    "Lower the learning rate.",
    explains=("loss-spike", "update-too-large", "dead-units"),
)
_kind(
    "learning-rate-too-low",
    "signal",
    "warning",
    "The learning rate is too low",
    "The loss hardly moves.",
    "share taken off the loss of the very batches the steps are taken on, by as many steps as were seen",
    "above 0.01",
    "Less than a hundredth, on batches that repeat, while the same steps at 100 to 1,000,000 times the rate "
    "take off more than a tenth.",
    "Steps are too small to matter.",
    "Raise the learning rate.",
)
_kind(
    "loss-at-init",
    "signal",
    "warning",
    "The first loss is too high",
    "The first hundreds of steps go into shrinking outputs that should have been small.",
    "first loss over that of a guess that knows nothing: ln(classes), or the targets' mean",
    "below 3 for classes, below 30 for squared error",
    "Logits of unit variance add half a nat; three times ln(classes) takes logits several times as wide. "
    "Thirty times the targets' variance takes targets more than five deviations from where outputs begin.",
    "The last layer's weights are too large, or the targets are not centred and scaled.",
    "Initialise the last layer small; standardise the targets.",
    explains=("cannot-overfit",),
)
_kind(
    "cannot-overfit",
    "signal",
    "serious",
    "The model cannot fit a single batch",
    "No training, however long, would work.",
    "loss on one batch after up to 200 steps of Adam on it alone, over the loss of the best constant guess",
    "below 0.9",
    "A model with more numbers than a batch has labels learns them by heart; one that stays at what a "
    "constant "
    "guess reaches cannot use its inputs.",
    "Inputs do not reach the outputs: a cut graph, a constant, labels unrelated to inputs.",
    "Follow one sample by hand from input to loss.",
    explains=("dead-units",),
)
_kind(
    "double-softmax",
    "signal",
    "serious",
    "Softmax before a loss that has its own",
    "The loss falls slowly and stops far above zero: with ten classes at 1.46, not 0.",
    "softmaxes, or sigmoids, on the way into the loss",
    "none",
    "Read off the graph: the loss takes logits, and what it gets came out of a softmax.",
    "cross_entropy contains log-softmax (and BCEWithLogits sigmoid); the model ends in one too. Or "
    "nll_loss gets "
    "probabilities in place of their logarithms.",
    "Give the loss the logits.",
    explains=("learning-rate-too-low", "cannot-overfit", "loss-at-init"),
)
_kind(
    "attention-saturated",
    "signal",
    "warning",
    "Attention is saturated",
    "Attention copies single tokens from the start, and its weights get no gradient.",
    "entropy of attention over that of uniform weights, mean over a layer's heads in the first steps",
    "above 0.1",
    "Scores of unit variance give about 0.8 of the uniform entropy; 0.1 takes scores of several times "
    "ln(length).",
    "Scores are not divided by √dim, or queries and keys begin too large.",
    "Divide scores by the square root of the head's width.",
)
_kind(
    "attention-uniform",
    "signal",
    "warning",
    "Attention is uniform",
    "Attention is a plain mean, whatever the input.",
    "1 − entropy of attention over that of uniform weights, largest over a layer's heads and all steps "
    "looked at",
    "above 1e-6",
    "Small initial scores give 1e-2 to 1e-4; below 1e-6 scores do not differ at all.",
    "Queries or keys are constant: zero weights, or a softmax over the wrong axis.",
    "Initialise queries and keys away from zero; take the softmax over keys.",
    explains=("gradient-never-arrives", "learning-rate-too-low"),
)
_kind(
    "normaliser-near-zero",
    "signal",
    "warning",
    "A normaliser comes near zero",
    "Single outputs are huge; training is erratic.",
    "smallest |normaliser| over its median",
    "above 1e-3",
    "A normaliser is a sum of weights; where they are positive it varies within a few powers of two. A "
    "thousandth of "
    "the median, or a change of sign, means that terms cancel.",
    "Kernel features that are not positive: the sum of weights crosses zero.",
    "Positive features: elu(x) + 1, exp, squares.",
    explains=("loss-spike", "loss-at-init", "exploding-gradients", "update-too-large"),
)
_kind(
    "loss-spike",
    "signal",
    "warning",
    "The loss spikes",
    "Once in a while the loss jumps by an order of magnitude.",
    "highest loss over the median of the ten before it",
    "below 10",
    "Batches of one kind differ by factors of two or three; ten, three times the highest of the ten before "
    "and above the first loss, is another thing.",
    "A bad sample, an overflow, or a step too large.",
    "Clip gradients; look at the batch of that step.",
)

# Leaks

_kind(
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
)
_kind(
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
)
_kind(
    "train-test-overlap",
    "leak",
    "serious",
    "Evaluation samples are training samples",
    "Validation is as good as training and the real thing is not.",
    "share of evaluation samples that training has seen, bit for bit",
    "0",
    "Distinct samples of many numbers do not agree in every bit; sets whose own samples repeat are not "
    "judged. One in a "
    "hundred rules out a few duplicates in the source.",
    "The split overlaps: slices or indices are not disjoint.",
    "Split once, by disjoint indices.",
)
_kind(
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
)
