"""Checkpoints: whole or not there, nothing executed, and a training that goes on ends with the same
numbers.
"""

import errno
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import Counter, OrderedDict, deque
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from heedful.training import Batches, Checkpoint, Patience, train
from heedful.training.checkpoint import Damaged, read
from heedful.training.packing import pack, unpack


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and bool((a == b).logical_or(a.isnan() & b.isnan()).all())
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple, deque)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or a != a)


def test_states_come_back_as_they_were(tmp_path, seed):
    state = {
        "numbers": [1, 2.5, True, None, "text", float("inf"), 0.1 + 0.2, -0.0],
        "tensors": (torch.randn(3), torch.tensor(2), torch.zeros(0, 3), torch.ones(2, dtype=torch.bfloat16)),
        "kinds": [torch.tensor([True, False]), torch.arange(3, dtype=torch.uint8), torch.randn(4, 4).T],
        "keys": {0: "zero", 1: {2: torch.ones(1)}, (3, "x"): 4, None: 5},
        "counts": Counter({30: 1, 60: 2}),
        "queue": deque([1, 2]),
        "torch": [torch.float16, torch.device("cpu")],
        "$strange": {"$tensor": "0"},
        "nested": OrderedDict(a=[[], {}, ()]),
    }
    Checkpoint(tmp_path).save(3, state)
    found = Checkpoint(tmp_path).load()
    state["nested"] = dict(state["nested"])
    assert equal(found, state)
    assert type(found["counts"]) is Counter
    assert numpy.signbit(found["numbers"][-1])


@pytest.mark.parametrize(
    "thing", [object(), lambda: 0, {1, 2}, torch.ones(2).to_sparse()], ids=lambda t: type(t).__name__
)
def test_what_cannot_be_written_is_named(thing):
    with pytest.raises(TypeError, match=r"a\.0\.b"):
        pack({"a": [{"b": thing}]})


def test_nothing_but_plain_things_is_made():
    with pytest.raises(ValueError, match=r"no torch\.load"):
        unpack({"$dtype": "load"}, {})
    assert unpack({"$type": "os.system"}, {}) == {"$type": "os.system"}


def test_the_last_two_stay_and_leftovers_go(tmp_path):
    checkpoint = Checkpoint(tmp_path / "deep" / "folder")
    for step in (5, 10, 15):
        checkpoint.save(step, {"step": step})
    (checkpoint.folder / ".step-000000020.part").write_bytes(b"half")
    (checkpoint.folder / "notes.txt").write_text("mine")
    assert [path.name for path in checkpoint.files()] == [
        "step-000000015.safetensors",
        "step-000000010.safetensors",
    ]
    assert checkpoint.load() == {"step": 15}
    assert sorted(os.listdir(checkpoint.folder))[0] == "notes.txt"
    assert Checkpoint(tmp_path / "nothing").load() is None


def spoiled(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "pickle":
        path.write_bytes(pickle.dumps({"weights": 1}))
    elif how == "flipped":
        place = len(content) - 5
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif how == "foreign":
        from safetensors.torch import save_file

        save_file({"x": torch.ones(3)}, path)


@pytest.mark.parametrize("how", ["truncated", "empty", "pickle", "flipped", "foreign"])
def test_damage_costs_one_checkpoint_and_is_told(how, tmp_path):
    checkpoint = Checkpoint(tmp_path)
    for step in (1, 2):
        checkpoint.save(step, {"step": step, "weights": torch.arange(100.0)})
    newest, older = checkpoint.files()
    spoiled(newest, how)
    with pytest.raises(Damaged, match=newest.name):
        read(newest)
    with pytest.warns(UserWarning, match=rf"{newest.name}.*Going on from {older.name}"):
        assert checkpoint.load()["step"] == 1
    spoiled(older, how)
    with pytest.raises(Damaged, match=rf"{newest.name}.*{older.name}.*begin anew"):
        checkpoint.load()


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    from heedful.training import checkpoint as module

    monkeypatch.setattr(module, "FORMAT", 2)
    Checkpoint(tmp_path).save(1, {})
    monkeypatch.undo()
    with pytest.raises(Damaged, match=r"format 2.*Update heedful"):
        Checkpoint(tmp_path).load()


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(1, {"step": 1})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"step 2 could not be written.*No space"):
        checkpoint.save(2, {"step": 2})
    monkeypatch.undo()
    assert checkpoint.load() == {"step": 1} and len(os.listdir(tmp_path)) == 1


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "Adagrad": {"lr": 0.01},
    "Adadelta": {"lr": 1.0},
    "RMSprop": {"lr": 0.01, "centered": True},
    "Rprop": {"lr": 0.01},
    "ASGD": {"lr": 0.1},
    "Adafactor": {"lr": 0.01},
    "LBFGS": {"max_iter": 3},
}
SCHEDULES = {
    "none": None,
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [3, 3, 7]),
    "cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=40, cycle_momentum=False),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
}


def loader(x, y, seed, **options):
    return DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True, **options)


def own_generator(x, y, seed):
    return loader(x, y, seed, generator=torch.Generator().manual_seed(seed))


DATA = {
    "batches": lambda x, y, seed: Batches(x, y, size=7, seed=seed),
    "list": lambda x, y, seed: list(zip(x.split(7), y.split(7), strict=True)),
    "loader": loader,
    "loader with a generator": own_generator,
}


class Killed(Exception):
    pass


def training(
    folder, seed, *, kind="AdamW", schedule="none", data="batches", die_at=None, every=2, precision="float32"
):
    """A training that draws from every generator there is, from its beginning; all it ends with."""
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
    random.seed(seed)
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    model.register_buffer("hidden", torch.zeros(()), persistent=False)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **OPTIMIZERS[kind])
    made = None if SCHEDULES[schedule] is None else SCHEDULES[schedule](optimizer)

    def loss(model, batch):
        noise = 0.1 * (random.random() + numpy.random.rand() + model.hidden)
        model.hidden += 0.01
        return F.cross_entropy(model(batch[0] + noise), batch[1]), {"noise": float(noise)}

    def evaluate(model):
        return {"val_loss": F.cross_entropy(model(x + 0.01 * torch.randn_like(x)), y)}

    def die(now):
        if die_at is not None and now.step == die_at:
            raise Killed

    history = train(
        model,
        loss,
        DATA[data](x, y, seed),
        optimizer,
        epochs=4,
        accumulate=2,
        clip=None if kind == "LBFGS" else 1.0,
        precision=precision,
        schedule=made,
        evaluate=evaluate,
        stop=Patience(50, val_loss="min"),
        callbacks=[die],
        checkpoint=None if folder is None else Checkpoint(folder, every=every),
        progress=False,
    )
    return {
        "weights": dict(model.state_dict()),
        "hidden": model.hidden,
        "optimizer": optimizer.state_dict(),
        "steps": history.steps,
        "epochs": history.epochs,
        "best": (history.best.weights, history.best.row),
        "next": [torch.rand(3), random.random(), float(numpy.random.rand()), numpy.random.randn()],
    }


def interrupted(folder, seed, times=3, **options):
    draw = random.Random(seed)
    for place in sorted(draw.randrange(1, 12) for _ in range(times)):
        with pytest.raises(Killed):
            training(folder, seed, die_at=place, every=draw.choice([1, 2, 3]), **options)
    return training(folder, seed, **options)


@pytest.mark.parametrize("data", DATA)
def test_it_goes_on_as_if_nothing_had_happened(data, tmp_path, seed):
    expected = training(None, seed, data=data)
    found = interrupted(tmp_path, seed, data=data)
    assert equal(found, expected)
    assert equal(
        training(tmp_path, seed, data=data) | {"next": 0}, expected | {"next": 0}
    )  # done, nothing to do


@pytest.mark.parametrize("how", ["whole", "a few", "one held"])
def test_an_evaluation_may_go_through_the_same_batches(how, tmp_path, seed):
    """It neither moves the training's place nor is moved by it, and both go on as they were."""
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(seed))

    def run(folder, die_at=None):
        torch.manual_seed(seed)
        batches, model = Batches(x, size=4, seed=seed), nn.Linear(3, 1)
        held = iter(batches)
        next(held)

        def evaluate(model):
            if how == "one held":
                next(held, None)
                return {"v": 0.0}
            rest = zip(range(99 if how == "whole" else 3), batches, strict=False)
            return {"v": [model(batch).mean() for _, batch in rest][-1]}

        def die(now):
            if now.step == die_at:
                raise Killed

        history = train(
            model,
            lambda model, batch: (model(batch) - 1).square().mean(),
            batches,
            torch.optim.SGD(model.parameters(), lr=0.1),
            epochs=3,
            every=3,
            evaluate=evaluate,
            callbacks=[die],
            checkpoint=None if folder is None else Checkpoint(folder, every=1),
            progress=False,
        )
        return {
            "weights": dict(model.state_dict()),
            "steps": history.steps,
            "epochs": history.epochs,
            "next": next(iter(batches)),
        }

    expected = run(None)
    assert len(expected["steps"]) == 24
    for place in (4, 8, 9, 17):
        with pytest.raises(Killed):
            run(tmp_path, die_at=place)
    assert equal(run(tmp_path), expected)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_goes_on(kind, tmp_path, seed):
    assert equal(interrupted(tmp_path, seed, times=2, kind=kind), training(None, seed, kind=kind))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_goes_on(schedule, tmp_path, seed):
    assert equal(
        interrupted(tmp_path, seed, times=2, schedule=schedule), training(None, seed, schedule=schedule)
    )


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_goes_on(precision, tmp_path, seed):
    found = interrupted(tmp_path, seed, times=2, precision=precision)
    assert equal(found, training(None, seed, precision=precision))


def simple(folder, *, width=3, epochs=2, **options):
    torch.manual_seed(0)
    model = nn.Linear(2, width)
    batches = options.pop("batches", [torch.ones(4, 2)])
    optimizer = options.pop("optimizer", torch.optim.SGD)(model.parameters(), lr=0.1)
    return train(
        model,
        lambda m, x: m(x).square().mean(),
        batches,
        optimizer,
        epochs=epochs,
        checkpoint=folder,
        progress=False,
        **options,
    )


def test_more_epochs_go_on_from_where_fewer_ended(tmp_path):
    simple(tmp_path, epochs=2)
    longer = simple(tmp_path, epochs=5)
    assert longer.epochs == simple(tmp_path / "other", epochs=5).epochs and len(longer.epochs) == 5


def test_a_stopped_training_stays_stopped(tmp_path):
    options = {"epochs": 9, "evaluate": lambda m: {"v": 1.0}, "stop": Patience(2, v="min")}
    first = simple(tmp_path, **options)
    assert simple(tmp_path, **options).epochs == first.epochs and len(first.epochs) == 3


@pytest.mark.parametrize(
    "options, message",
    [
        ({"width": 5}, "weights are not this model's"),
        ({"batches": Batches(torch.ones(4, 2), size=4)}, "batches were of another kind"),
        ({"evaluate": lambda m: {"v": 1.0}, "stop": Patience(2, v="min")}, "another stopping rule"),
        ({"precision": "float16"}, "without a scaler"),
        ({"callbacks": [print]}, "0 callbacks"),
    ],
)
def test_another_training_is_refused(options, message, tmp_path):
    simple(tmp_path, epochs=2)
    with pytest.raises(ValueError, match=rf"(?s)not of this training: .*{message}.*another folder"):
        simple(tmp_path, epochs=3, **options)


def test_how_often(tmp_path):
    seen = []
    simple(tmp_path, epochs=10, callbacks=[lambda now: seen.append(len(list(tmp_path.glob("step-*"))))])
    assert set(seen) == {0}  # thirty seconds do not pass
    simple(Checkpoint(tmp_path / "often", seconds=0), epochs=3)
    assert len(Checkpoint(tmp_path / "often").files()) == 2
    for wrong in ({"every": 0}, {"keep": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            Checkpoint(tmp_path, **wrong)


SCRIPT = Path(__file__).with_name("killed.py")


def child(folder, seed):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_killed_at_any_moment(tmp_path, seed):
    """SIGKILL at random moments, while stepping, writing, renaming or removing; then the run to its end."""
    whole = child(tmp_path / "whole", seed)
    expected = whole.communicate(timeout=300)[0].splitlines()
    assert whole.returncode == 0
    draw, kills = random.Random(seed), 0
    while kills < 3:
        process = child(tmp_path / "killed", seed)
        if process.stdout.readline().startswith("done"):  # before the third time, on a fast machine
            process.communicate(timeout=60)
            break
        time.sleep(draw.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=60)[0]
        assert process.returncode == -signal.SIGKILL or "done" in rest
        kills += 1
    process = child(tmp_path / "killed", seed)
    found = process.communicate(timeout=300)[0].splitlines()
    assert process.returncode == 0 and found[-1] == expected[-1] and expected[-1].startswith("done ")
