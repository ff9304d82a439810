"""The loop: what is done with gradients, parameters, modes and batches."""

from . import kind

kind(
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
    "`zero_grad()` before the line of `backward()`.",
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
kind(
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
    "The loss divided by the number of pieces at the line of `backward()`; none where a library calls "
    "`backward()`.",
    explains=("learning-rate-too-high", "loss-spike", "update-too-large", "non-finite"),
)
kind(
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
    "The loss multiplied by the number of pieces at the line of `backward()`.",
    explains=("learning-rate-too-low",),
)
kind(
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
    "Every BatchNorm of the file becomes a LayerNorm or a GroupNorm.",
)
kind(
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
    "`zero_grad()` moved before `backward()`.",
    explains=(
        "learning-rate-too-low",
        "parameter-never-updated",
        "gradient-never-arrives",
        "step-before-backward",
        "cannot-overfit",
        "same-batch-every-step",
    ),
)
kind(
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
    "`step()` moved behind `backward()`.",
    explains=(
        "learning-rate-too-low",
        "parameter-never-updated",
        "gradient-never-arrives",
        "zero-grad-before-step",
        "gradients-not-cleared",
        "cannot-overfit",
    ),
)
kind(
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
    "`scheduler.step()` moved behind `optimizer.step()`, or behind the loop over batches.",
)
kind(
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
    "The optimizer gets the parameters of the models left out; a plain list of layers becomes an "
    "`nn.ModuleList`; an optimizer built too early is moved.",
    explains=("gradient-never-arrives", "parameter-never-updated", "learning-rate-too-low"),
)
kind(
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
    "A rate of zero is taken out of its group. Against lost precision there is none: which numbers to "
    "keep in float32 is not the doctor's to say.",
    explains=("learning-rate-too-low", "cannot-overfit"),
)
kind(
    "gradient-never-arrives",
    "loop",
    "serious",
    "No gradient reaches a parameter",
    "Part of the model stays at its initial values.",
    "norm of the parameter's gradient, largest over all steps looked at",
    "above 0",
    "A parameter whose module ran in every step looked at and that got no gradient in any is cut off; so is "
    "one whose gradient was exactly zero in five looks or more, for rounding is not zero.",
    "Something between it and the loss cuts the graph: detach(), .data, .item(), argmax, no_grad, numpy; or "
    "multiplies it by zero, as two factors do that both begin there.",
    "Remove the cut, begin one of the factors away from zero, or freeze the parameter: "
    "p.requires_grad_(False).",
    "The one `detach()`, `torch.tensor(loss.item(), …)` or `no_grad()` before `backward()` goes; of two "
    "factors of zeros one is drawn. None "
    "where there are several cuts, or the cut is a rounding, an argmax or numpy: what should stand "
    "there instead is not known.",
    explains=("parameter-never-updated", "cannot-overfit"),
)
kind(
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
    "`model.train()` before the forward pass.",
    explains=("learning-rate-too-high",),
)
kind(
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
    "`model.eval()` before the evaluation, `model.train()` behind it.",
)
kind(
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
    "`loss.item()` where the loss is kept, or `state = state.detach()` where a state is carried.",
)
kind(
    "clip-after-step",
    "loop",
    "serious",
    "Gradients are clipped after the step, or before backward()",
    "Clipping has no effect; losses spike as if it were not there.",
    "share of clippings that came after their gradient's step, or before there was one",
    "0",
    "The order is exact; at least two clippings and nine in ten of them rule out an accident.",
    "clip_grad_norm_ stands behind optimizer.step(), or before backward().",
    "Clip between backward() and step().",
    "The clipping moved before `step()`.",
    explains=("loss-spike",),
)
kind(
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
    "`scaler.unscale_(optimizer)` before the clipping.",
    explains=("learning-rate-too-low",),
)
kind(
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
    "The one logarithm or root of the file is kept above 1e-8; where weights or outputs overflowed, "
    "the learning rate is lowered. None against data that is not finite: what belongs there is not "
    "known.",
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
kind(
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
    "`next(iter(loader))` becomes the next of a stream made before the loop. None for a slice that "
    "stands still: where it should go is not known.",
)
kind(
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
    "`shuffle=True` for the loader. None where batches are sliced by hand.",
    explains=("loss-spike", "learning-rate-too-high"),
)
kind(
    "view-mixes-axes",
    "loop",
    "serious",
    "A view mixes axes on the way to the loss",
    "The loss falls slowly and never far: most predictions are compared with other places' labels.",
    "size of the axis of classes, which the view cut through",
    "the classes stay together",
    "Read off the graph: a tensor with classes in axis 1 was viewed as (…, classes) without moving that "
    "axis to the end; or logits (A, B, classes) and labels (B, A) were both made flat. Inside a model, a "
    "tensor (layers, N, …) was viewed as (N, …), and one sample's output has a gradient from another's "
    "input.",
    "view/reshape keeps the order of numbers in memory; it does not transpose.",
    "logits.movedim(1, -1).reshape(-1, classes), or give cross_entropy (N, classes, …) as it is; "
    "logits.transpose(0, 1) where a recurrent net puts time first, and state.transpose(0, 1)."
    "flatten(1) of its last states.",
    "`movedim` or `transpose` before the one view of the file that makes logits flat, or samples of states.",
    explains=("cannot-overfit", "learning-rate-too-low", "batch-leak"),
)
kind(
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
    "`squeeze(-1)` behind the model's call.",
    explains=("cannot-overfit", "learning-rate-too-low", "loss-at-init", "update-too-large"),
)
