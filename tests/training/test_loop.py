"""train(): the numbers of a loop written by hand, to the bit; accumulation of the joint batch; clear
errors.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from heedful.training import Batches, Patience, train


def net(dtype=torch.float32):
    layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
    return nn.Sequential(*layers).to(dtype)


def data(rows=30, dtype=torch.float32):
    return torch.randn(rows, 4, dtype=dtype), torch.randint(3, (rows,))


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adadelta", "RMSprop"])
def test_it_is_the_loop_one_would_write(kind, clip, seed):
    batches, model = list(Batches(*data(), size=8, seed=seed)), net()
    twin = copy.deepcopy(model)
    optimizer, other = (getattr(torch.optim, kind)(m.parameters(), lr=0.05) for m in (model, twin))
    schedule, slower = (lr_scheduler.ExponentialLR(o, 0.9) for o in (optimizer, other))

    torch.manual_seed(seed)
    history = train(model, loss, batches, optimizer, epochs=3, clip=clip, schedule=schedule, progress=False)

    torch.manual_seed(seed)
    losses = []
    for _ in range(3):
        for batch in batches:
            other.zero_grad()
            value = loss(twin, batch)
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(twin.parameters(), clip)
            other.step()
            slower.step()
            losses.append(value.item())
    assert same(model.state_dict(), twin.state_dict())
    assert history.column("loss", "steps") == losses
    means = [sum(8 * a for a in losses[n : n + 3]) + 6 * losses[n + 3] for n in (0, 4, 8)]
    assert history.column("loss") == pytest.approx([total / 30 for total in means])
    assert [row["epoch"] for row in history.epochs] == [1, 2, 3] and history.stopped == "done"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_accumulated_batches_count_by_their_samples(precision, seed):
    """30 rows in batches of 8, 8, 8, 6, three a step: the gradient is that of 24 rows, then of 6."""
    model = nn.Linear(4, 3).double() if precision == "float32" else nn.Linear(4, 3)
    x, y = data(dtype=model.weight.dtype)
    twin = copy.deepcopy(model)
    batches = Batches(x, y, size=8, shuffle=False)
    rate = {"lr": 0.5, "momentum": 0.9}
    options = {"epochs": 2, "clip": 0.3, "progress": False, "precision": precision}
    history = train(
        model, loss, batches, torch.optim.SGD(model.parameters(), **rate), accumulate=3, **options
    )
    joint = [(x[:24], y[:24]), (x[24:], y[24:])]
    expected = train(twin, loss, joint, torch.optim.SGD(twin.parameters(), **rate), **options)
    near = {"rtol": 1e-12, "atol": 1e-12} if precision == "float32" else {"rtol": 0.05, "atol": 0.02}
    torch.testing.assert_close(model.weight, twin.weight, **near)
    for name in ("loss", "gradient_norm"):
        for rows in ("steps", "epochs"):
            found, wanted = (torch.tensor(h.column(name, rows)) for h in (history, expected))
            torch.testing.assert_close(found, wanted, check_dtype=False, rtol=near["rtol"] + 1e-7, atol=1e-2)


def test_samples_can_be_counted_otherwise(seed):
    """Sequences of different lengths, counted by their tokens."""
    batches = [torch.randn(2, length, 4, dtype=torch.float64) for length in (3, 10, 1)]
    model = nn.Linear(4, 1).double()
    twin = copy.deepcopy(model)

    def mean(model, batch):
        return model(batch).square().mean()

    options = {"epochs": 1, "progress": False}
    train(
        model,
        mean,
        batches,
        torch.optim.SGD(model.parameters(), lr=1.0),
        accumulate=3,
        samples=lambda batch: batch.shape[:2].numel(),
        **options,
    )
    joint = [torch.cat([batch.flatten(0, 1) for batch in batches])]
    train(twin, mean, joint, torch.optim.SGD(twin.parameters(), lr=1.0), **options)
    torch.testing.assert_close(model.weight, twin.weight)


def test_float16_learns_and_clips_the_true_gradient(seed):
    """The scaler's factor of 65536 must not be seen by the clipping."""
    model, (x, y) = nn.Linear(4, 3), data()
    history = train(
        model,
        loss,
        [(x, y)],
        torch.optim.SGD(model.parameters(), lr=0.5),
        epochs=40,
        precision="float16",
        clip=1e3,
        progress=False,
    )
    losses, norms = history.column("loss", "steps"), history.column("gradient_norm", "steps")
    assert losses[-1] < losses[0] and norms[0] < 10 and model.weight.dtype == torch.float32


def test_lbfgs_takes_its_own_steps(seed):
    batch, model = data(), nn.Linear(4, 3)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.LBFGS(m.parameters(), max_iter=4) for m in (model, twin))
    history = train(model, loss, [batch], optimizer, epochs=3, progress=False)

    def again():
        other.zero_grad()
        value = loss(twin, batch)
        value.backward()
        return value

    first = [other.step(again).item() for _ in range(3)]
    assert same(model.state_dict(), twin.state_dict()) and history.column("loss", "steps") == first


def test_evaluation_sees_eval_mode_and_leaves_modes_alone(seed):
    model, batches = net(), [data()]
    modes = []

    def evaluate(model):
        modes.append((model.training, torch.is_grad_enabled()))
        return {"val_loss": loss(model, batches[0]), "number": 3}

    def freeze(training):
        training.model[1].eval()

    history = train(
        model,
        loss,
        batches,
        torch.optim.SGD(model.parameters(), lr=0.1),
        epochs=3,
        evaluate=evaluate,
        callbacks=[freeze],
        progress=False,
    )
    assert modes == [(False, False)] * 3
    assert model.training and not model[1].training and model[3].training
    assert history.column("number") == [3.0] * 3 and all(type(v) is float for v in history.column("val_loss"))


def test_the_best_weights_are_kept_and_patience_stops(seed):
    model, (x, y) = nn.Linear(4, 3), data()
    scripted, seen = iter([3.0, 1.0, 2.0, 1.0, 5.0, 0.0]), []

    def evaluate(model):
        seen.append(copy.deepcopy(model.state_dict()))
        return {"val_loss": next(scripted)}

    rule = Patience(3, val_loss="min")
    history = train(
        model,
        loss,
        [(x, y)],
        torch.optim.SGD(model.parameters(), lr=0.1),
        epochs=50,
        evaluate=evaluate,
        stop=rule,
        progress=False,
    )
    assert len(history.epochs) == 5 and history.stopped == "Patience(3, val_loss='min') at epoch 5"
    assert history.best.row["epoch"] == 2 and same(history.best.weights, seen[1])
    assert same(model.state_dict(), seen[4]) and rule.since == 0  # the rule given stays as it was


@pytest.mark.parametrize("steps", [1, 6, 9, 12])
def test_steps_and_every(steps, seed):
    batches, model, evaluated = Batches(*data(), size=8, seed=seed), nn.Linear(4, 3), []
    history = train(
        model,
        loss,
        batches,
        torch.optim.SGD(model.parameters(), lr=0.1),
        steps=steps,
        every=4,
        evaluate=lambda m: {"place": evaluated.append(0) or len(evaluated)},
        progress=False,
    )
    expected = [n for n in range(1, steps + 1) if n % 4 == 0 or n == steps]
    assert [row["step"] for row in history.epochs] == expected and len(evaluated) == len(expected)
    assert len(history.steps) == steps
    assert [row["epoch"] for row in history.steps] == [1 + n // 4 for n in range(steps)]


def test_callbacks_and_store(seed):
    class Store:
        rows = []

        def log(self, step, **numbers):
            self.rows.append((step, numbers))

    told = []

    def callback(now):
        told.append((now.step, now.epoch, now.row is not None))
        if now.step == 5:
            now.stop("five are enough")

    model = nn.Linear(4, 3)
    history = train(
        model,
        lambda m, b: (loss(m, b), {"size": len(b[0])}),
        Batches(*data(16), size=8),
        torch.optim.SGD(model.parameters(), lr=0.1),
        epochs=9,
        evaluate=lambda m: {"one": 1},
        callbacks=[callback],
        store=Store(),
        progress=True,
    )
    assert history.stopped == "five are enough" and len(history.steps) == 5
    assert [row for row in told if row[2]] == [(2, 1, True), (4, 2, True), (5, 3, True)]
    assert [(step, set(row)) for step, row in Store.rows[:3]] == [
        (1, {"loss", "size"}),
        (2, {"loss", "size"}),
        (2, {"epoch", "one"}),
    ]
    assert history.last["size"] == 8


def test_the_loss_is_the_loss(seed):
    """Whatever else the function calls by that name."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = train(
        model, lambda m, b: (loss(m, b), {"loss": -7.0}), [data()], optimizer, epochs=1, progress=False
    )
    assert history.last["loss"] > 0


def test_progress_is_shown_on_terminals_only(capsys, monkeypatch):
    model = nn.Linear(4, 3)
    options = {"epochs": 3, "evaluate": lambda m: {"val_loss": 0.25}}
    train(model, loss, [data()], torch.optim.SGD(model.parameters(), lr=0.1), **options)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    train(model, loss, [data()], torch.optim.SGD(model.parameters(), lr=0.1), **options)
    shown = capsys.readouterr().err
    assert "epoch 1" in shown and "left" in shown and "loss" in shown
    train(model, loss, [data()], torch.optim.SGD(model.parameters(), lr=0.1), **options, progress=False)
    assert capsys.readouterr().err == ""


def test_plateau_looks_at_the_validation_loss(seed):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.1)
    train(
        model,
        loss,
        [data()],
        optimizer,
        epochs=5,
        schedule=schedule,
        evaluate=lambda m: {"val_loss": 1.0},
        progress=False,
    )
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_history_reads_well(seed):
    model = nn.Linear(4, 3)
    history = train(
        model,
        loss,
        [data()],
        torch.optim.SGD(model.parameters(), lr=0.1),
        epochs=2,
        evaluate=lambda m: {"val_loss": 1.5},
        stop=Patience(9, val_loss="min"),
        progress=False,
    )
    assert "2 steps, 2 evaluations" in repr(history) and "val_loss 1.5" in repr(history)
    with pytest.raises(KeyError, match=r"no 'accuracy'.*val_loss"):
        history.column("accuracy")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(history.frame(), pandas.DataFrame) and list(
        history.frame("steps").loss
    ) == history.column("loss", "steps")


def test_pandas_is_asked_for_by_name(monkeypatch):
    import sys

    from heedful.training import History

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        History().frame()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_it_spoils_the_weights(value, seed):
    model, (x, y) = nn.Linear(4, 3), data(16)
    calls, before = [], None

    def sometimes(model, batch):
        calls.append(0)
        return loss(model, batch) * (value if len(calls) == 3 else 1)

    def keep(now):
        nonlocal before
        before = copy.deepcopy(now.model.state_dict())

    with pytest.raises(FloatingPointError, match=r"(nan|inf) at step 3 \(epoch 2\).*\(0.25 now\).*clip"):
        train(
            model,
            sometimes,
            Batches(x, y, size=8),
            torch.optim.SGD(model.parameters(), lr=0.25),
            epochs=4,
            callbacks=[keep],
            progress=False,
        )
    assert same(model.state_dict(), before)


def bad(**options):
    model, (x, y) = nn.Linear(4, 3), data(16)
    chosen = {"epochs": 1, "loss": loss, "batches": [(x, y)], "optimizer": None, "progress": False, **options}
    optimizer = chosen.pop("optimizer") or torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, chosen.pop("loss"), chosen.pop("batches"), optimizer, **chosen)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"epochs": None}, "epochs, or steps"),
        ({"steps": 3}, "one of the two"),
        ({"epochs": 0}, "epochs is 0"),
        ({"accumulate": 1.5}, "accumulate is 1.5"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"clip": "a"}, "clip is 'a'; it takes a norm"),
        ({"precision": "int8"}, "precision is 'int8'; it takes float32"),
        ({"stop": Patience(3, a="min")}, "pass evaluate"),
        ({"batches": []}, "batches gave nothing"),
        ({"batches": (b for b in [data(4)]), "epochs": 2}, "batches gave nothing"),
        ({"loss": lambda m, b: m(b[0])}, r"shape \(16, 3\).*one number"),
        ({"loss": lambda m, b: 3.0}, "returned 3.0"),
        ({"loss": lambda m, b: loss(m, b).detach()}, "does not depend on the parameters"),
        ({"loss": lambda m, b: (loss(m, b), {"x": b[0]})}, r"'x' as a tensor of shape \(16, 4\)"),
        ({"evaluate": lambda m: 3.0}, r"evaluate\(model\) returned 3.0"),
        ({"evaluate": lambda m: {"a": "b"}}, r"measured 'a' as 'b'"),
        ({"evaluate": lambda m: {"a": 1}, "stop": Patience(3, b="min")}, "no 'b' among"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1)}, "none of the model's"),
        ({"samples": lambda b: 0}, "0 samples"),
    ],
)
def test_bad_input(options, message, seed):
    with pytest.raises((ValueError, TypeError), match=message):
        bad(**options)


def test_lbfgs_refuses_what_it_cannot_do():
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="LBFGS"):
        bad(optimizer=torch.optim.LBFGS(model.parameters()), clip=1.0)


def test_capture_without_a_gpu_says_so(seed):
    from heedful.training import captured

    assert callable(captured) and captured.__module__ == "heedful.kernels.recording"  # no module of its name
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    model = nn.Linear(3, 1)
    with pytest.warns(UserWarning, match="not on a CUDA device; steps are taken as usual"):
        history = train(
            model,
            lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
            [(x, y)],
            torch.optim.SGD(model.parameters(), lr=0.1),
            epochs=5,
            capture=True,
            progress=False,
        )
    assert len(history.steps) == len(history.epochs) == 5
