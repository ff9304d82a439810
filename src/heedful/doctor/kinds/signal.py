"""The signal: how gradients, activations and losses behave."""

from . import kind

kind(
    "vanishing-gradients",
    "signal",
    "serious",
    "Gradients vanish with depth",
    "The first layers do not learn; deeper nets are worse than shallow ones, in training too.",
    "gradient of the first layers' outputs over that of the last layers', at the start",
    "above 1e-3",
    "Eight layers with torch's default weights have 5e-3 and train; at 1e-3 the first layers move at "
    "a thousandth of the speed. The first half must share in it: one small last layer is no depth; nor "
    "is a small branch beside a stream that gets a hundredth or more.",
    "Each layer shrinks the gradient: saturated activations, weights too small, or depth without skips.",
    "Skips around blocks, He or orthogonal initial weights, ReLU or GELU in place of sigmoids.",
    "Whichever twin heals it: initial weights, skips around every two layers by hooks, or ReLU for "
    "sigmoids, put in where the optimizer is built.",
    explains=(
        "learning-rate-too-low",
        "cannot-overfit",
        "dead-units",
        "gradient-never-arrives",
        "parameter-never-updated",
    ),
)
kind(
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
    "Whichever twin heals it: initial weights, or skips around every two layers by hooks, put in "
    "where the optimizer is built.",
    explains=("learning-rate-too-high", "loss-at-init", "loss-spike", "update-too-large"),
)
kind(
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
    "The one statement that sets a bias sets it to zero. None where training killed the units: the "
    "learning rate is judged by itself.",
    explains=("gradient-never-arrives", "learning-rate-too-low"),
)
kind(
    "update-too-large",
    "signal",
    "warning",
    "Updates are large against the weights",
    "Each step throws away what was learned.",
    "‖Δw‖ / ‖w‖ of a step, median over weight matrices and steps looked at",
    "below 0.3, below 0.1 where the loss ends above 1.5 times where it began",
    "About 1e-3 is usual and 1e-1 brave; at 0.3 every few steps replace the weights. Tiny models may bear "
    "it, so the loss must not fall either; where it rises by half, what is brave has not paid.",
    "The learning rate is too high for the weights' size.",
    "Lower the learning rate, or warm it up.",
    "The learning rate, such that updates are a hundredth of the weights.",
)
kind(
    "learning-rate-too-high",
    "signal",
    "serious",
    "The learning rate is too high",
    "The loss grows, or jumps about above where it began.",
    "loss of the last quarter over the first loss",
    "below 1.2; below 0.95 where the first steps change weights by more than a tenth",
    "Noise of batches moves medians of a quarter of the run by less than a fifth of the first loss; and "
    "the same "
    "batches must do better with a tenth or a hundredth of the rate, a tenth better where the loss "
    "stands still.",
    "Steps overshoot.",
    "Lower the learning rate.",
    "The best of a tenth, a hundredth and a thousandth of the rate, by experiment on copies.",
    explains=("loss-spike", "update-too-large", "dead-units", "non-finite"),
)
kind(
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
    "The best of 100 to 1,000,000 times the rate, by factors of ten, by experiment on copies.",
)
kind(
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
    "Small weights in the last layer; for squared errors, its bias at the targets' mean.",
    explains=("cannot-overfit", "learning-rate-too-low"),
)
kind(
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
    "None: that inputs do not reach outputs is certain, where they are lost is not. The number is "
    "itself an experiment: 200 steps on one batch.",
    explains=("dead-units",),
)
kind(
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
    "Give the loss the logits; nll_loss their log_softmax.",
    "The one softmax of the file is taken out; before `nll_loss` it becomes a log_softmax.",
    explains=("learning-rate-too-low", "cannot-overfit", "loss-at-init"),
)
kind(
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
    "Scores divided by their own deviation before the one softmax of the file.",
)
kind(
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
    "What was set to zero of queries or keys is drawn small.",
    explains=("gradient-never-arrives", "learning-rate-too-low"),
)
kind(
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
    "None: which positive features to use is a choice of the model's author.",
    explains=("loss-spike", "loss-at-init", "exploding-gradients", "update-too-large"),
)
kind(
    "loss-spike",
    "signal",
    "warning",
    "The loss spikes",
    "Once in a while the loss jumps by an order of magnitude.",
    "highest loss over the median of the ten before it",
    "below 10",
    "Batches of one kind differ by factors of two or three; ten, three times the highest of the ten before, "
    "above the first loss, and four deviations of their logarithm away, is another thing.",
    "A bad sample, an overflow, or a step too large.",
    "Clip gradients; look at the batch of that step.",
    "None: the step is named, and its batch has to be looked at; clipping hides what is wrong with it.",
)
