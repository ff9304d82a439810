"""Many seeds: one after another, stacked and in processes give the same; what cannot be stacked says why."""

from functools import partial

import pytest
import torch
import training_examples as examples
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heedful.training import Batches, Experiment, Patience, stacked, train_seeds
from heedful.training.stack import Unstackable
from heedful.training.threads import Threads
from heedful.training.workers import Unsendable

SEEDS = [3, 11, 4]


@pytest.fixture(autouse=True)
def one_thread():
    """With as many threads as a worker has, the loop's sums go in the same order as theirs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def both(experiment, seeds=SEEDS):
    options = {"progress": False}
    return [train_seeds(experiment, seeds, backend=name, **options) for name in ("loop", "stacked")]


def assert_alike(one, other, *, rtol=1e-7, atol=1e-9):
    """Every number of every seed: rows, tests, last and best weights. Rounding in float64 is 1e-16 a step."""
    for a, b in zip(one, other, strict=True):
        assert a.seed == b.seed and a.history.stopped == b.history.stopped
        assert a.test == pytest.approx(b.test, rel=rtol, abs=atol)
        for rows in ("steps", "epochs"):
            for row, twin in zip(getattr(a.history, rows), getattr(b.history, rows), strict=True):
                assert row == pytest.approx(twin, rel=rtol, abs=atol)
        weights = [(a.weights, b.weights)]
        if a.history.best is not None:
            weights.append((a.history.best.weights, b.history.best.weights))
        for left, right in weights:
            assert list(left) == list(right)
            for name in left:
                torch.testing.assert_close(left[name], right[name], rtol=rtol, atol=atol, msg=name)


@pytest.mark.parametrize("kind", examples.MODELS)
def test_stacked_is_the_loop(kind, seed):
    """Dropout, batch norm, shared weights, attention on a graph, convolutions, an LSTM, a transformer."""
    experiment = examples.experiment(kind, schedule=examples.cosine)
    loop, stacked = both(experiment, [seed, seed + 1, seed + 2])
    assert_alike(loop, stacked)
    assert len({o.history.steps[0]["loss"] for o in stacked}) == 3


@pytest.mark.parametrize("kind", examples.OPTIMIZERS)
def test_every_optimizer_is_torchs(kind, seed):
    assert_alike(*both(examples.experiment(with_optimizer=kind), [seed, seed + 1]))


def test_in_float32_to_rounding(seed):
    """5 steps of SGD keep a relative rounding of 6e-8 within 1e-5; Adam would blow up gradients of size 0."""
    experiment = examples.experiment(dtype=torch.float32, with_optimizer="SGD", epochs=2)
    assert_alike(*both(experiment, [seed, seed + 1]), rtol=1e-4, atol=1e-5)


def test_accumulation_clipping_and_steps(seed):
    options = {"accumulate": 2, "clip": 0.2, "epochs": None, "steps": 7, "every": 3}
    batches = Batches(examples.X, examples.Y, size=10, seed=seed)  # the last of an epoch has 8 rows
    loop, stacked = both(examples.experiment(batches=batches, **options), [seed, seed + 1])
    assert_alike(loop, stacked)
    assert [row["step"] for row in stacked[0].history.epochs] == [3, 6, 7]
    assert batches.state()["epoch"] == batches.state()["position"] == 0  # those given stay where they are


def test_a_loader_gives_each_seed_its_own_order(seed):
    loader = DataLoader(TensorDataset(examples.X, examples.Y), batch_size=16, shuffle=True)
    loop, stacked = both(examples.experiment(batches=loader), [seed, seed + 1])
    assert_alike(loop, stacked)


def test_each_stops_when_it_has_enough(seed):
    """Those that stopped leave the stack; the others go on as if they had never been there."""
    experiment = examples.experiment(epochs=80, stop=Patience(2, val_loss="min"), with_optimizer="SGD")
    seeds, told = list(range(seed, seed + 8)), []
    loop = train_seeds(experiment, seeds, backend="loop", progress=False)
    stacked = train_seeds(experiment, seeds, backend="stacked", done=told.append, progress=False)
    assert_alike(loop, stacked)
    lengths = [len(outcome.history.epochs) for outcome in stacked]
    assert len(set(lengths)) > 1 and [o.seed for o in stacked] == seeds
    assert sorted(len(o.history.epochs) for o in told) == [len(o.history.epochs) for o in told]


def test_narrow_stacks_give_the_same(seed):
    experiment = examples.experiment(epochs=2)
    wide, narrow = (
        train_seeds(experiment, 5, backend="stacked", width=width, progress=False) for width in (5, 2)
    )
    assert_alike(wide, narrow)


def test_nothing_outside_is_moved(seed):
    torch.manual_seed(seed)
    expected = torch.rand(3)
    for backend in ("loop", "stacked", "auto"):
        torch.manual_seed(seed)
        train_seeds(examples.experiment(epochs=1), 2, backend=backend, progress=False)
        assert torch.equal(torch.rand(3), expected), backend


def test_processes_are_the_loop_to_the_bit(seed):
    """And stacked within processes is stacked."""
    experiment = examples.experiment(epochs=3, stop=Patience(9, val_loss="min"))
    loop, stacked = both(experiment)
    told, stores = [], []
    apart = train_seeds(experiment, SEEDS, backend="processes", workers=2, done=told.append, progress=False)
    assert sorted(o.seed for o in told) == sorted(SEEDS) and not stores
    for a, b in zip(loop, apart, strict=True):
        assert a.seed == b.seed and a.test == b.test
        assert a.history.steps == b.history.steps and a.history.epochs == b.history.epochs
        for left, right in ((a.weights, b.weights), (a.history.best.weights, b.history.best.weights)):
            assert all(torch.equal(left[name], right[name]) for name in left)
    both_ways = train_seeds(experiment, SEEDS, backend="processes", workers=2, width=2, progress=False)
    assert_alike(both_ways, stacked)


def test_a_seed_that_fails_is_named(seed):
    experiment = examples.experiment(epochs=1, loss=partial(examples.failing, seed=11))
    with pytest.raises(
        RuntimeError, match=r"(?s)seed 11 failed in a worker.*ArithmeticError: seeds like this"
    ):
        train_seeds(experiment, SEEDS, backend="processes", workers=2, progress=False)
    with pytest.raises(ArithmeticError) as caught:
        train_seeds(experiment, SEEDS, backend="loop", progress=False)
    assert caught.value.__notes__ == ["This was seed 11."]
    with pytest.raises(FloatingPointError, match="of seed 3"):
        train_seeds(examples.experiment(loss=examples.diverging), SEEDS, backend="stacked", progress=False)


def test_a_worker_that_dies_is_told(seed):
    experiment = examples.experiment(epochs=1, loss=examples.dying)
    with pytest.raises(RuntimeError, match=r"worker process died.*seeds 3, 4, 11 are not done"):
        train_seeds(experiment, SEEDS, backend="processes", workers=2, progress=False)


def test_what_cannot_be_sent_says_why():
    with pytest.raises(Unsendable, match="top of a module"):
        train_seeds(
            examples.experiment(loss=lambda m, b: examples.loss(m, b)), 2, backend="processes", progress=False
        )


class Own(nn.Module):
    """What differs between seeds is not registered."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3).double(), torch.rand(1).double()

    def forward(self, x):
        return self.layer(x) * self.scale


class Deep(nn.Sequential):
    """As deep as its seed is odd."""

    def __init__(self):
        super().__init__(
            *[nn.Linear(6, 6).double() for _ in range(torch.initial_seed() % 2)], nn.Linear(6, 3).double()
        )


def looking(model, batch):
    value, _ = examples.loss(model, batch)
    return value * (2 if value > 0 else 1)


def numpy_noise(model, batch):
    import numpy

    return examples.loss(model, (batch[0] + numpy.random.rand(), batch[1]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": Own}, "scale differs from seed to seed"),
        ({"model": Deep}, "differ in their layers|differ in the shapes"),
        ({"loss": looking}, "loss cannot be called for all seeds at once.*control flow"),
        ({"loss": numpy_noise}, "random numbers from numpy"),
        (
            {"evaluate": lambda m: {"v": examples.evaluate(m)["val_loss"].item()}},
            r"evaluate cannot.*\.item\(\)",
        ),
        ({"optimizer": lambda m: torch.optim.LBFGS(m.parameters())}, "LBFGS mixes"),
        ({"optimizer": lambda m: torch.optim.Adafactor(m.parameters())}, "Adafactor mixes"),
        ({"precision": "float16"}, "bfloat16"),
        ({"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau}, "rate of its own"),
        (
            {
                "batches": lambda seed: Batches(
                    examples.X[: 20 + seed % 7], examples.Y[: 20 + seed % 7], size=9
                )
            },
            "differ",
        ),
        ({"batches": iter([(examples.X, examples.Y)])}, "only once"),
    ],
)
def test_what_cannot_be_stacked_says_why(options, message, seed):
    with pytest.raises(Unstackable, match=f"(?s){message}"):
        train_seeds(examples.experiment(epochs=2, **options), SEEDS, backend="stacked", progress=False)


def test_mistakes_show_as_themselves(seed):
    def wrong(model, batch):
        return F.cross_entropy(model(batch[0][:, :5]), batch[1])

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        train_seeds(examples.experiment(loss=wrong), SEEDS, backend="stacked", progress=False)


def test_auto_takes_what_can_be_taken(seed):
    lone = examples.experiment(epochs=2)
    found = train_seeds(lone, SEEDS, progress=False)
    assert found.choice.backend in ("loop", "stacked") and set(found.choice.seconds) == {"loop", "stacked"}
    assert "starting them" in found.choice.reasons["processes"] and "→" in repr(found.choice)
    assert_alike(found, train_seeds(lone, SEEDS, backend="loop", progress=False))
    unstackable = train_seeds(examples.experiment(epochs=1, loss=looking), SEEDS, progress=False)
    assert unstackable.choice.backend == "loop" and "control flow" in unstackable.choice.reasons["stacked"]
    assert train_seeds(lone, [5], progress=False).choice.backend == "loop"


def test_auto_goes_on_without_the_stack_when_it_breaks_late(seed):
    """Epochs of different lengths, which a few steps do not show."""

    def uneven(number):
        return (
            Batches(examples.X, examples.Y, size=4, seed=number)
            if number
            else [(examples.X[:4], examples.Y[:4])] * 11
        )

    experiment, told = examples.experiment(batches=uneven, epochs=1), []
    found = train_seeds(experiment, 2, done=told.append, progress=False)
    assert_alike(found, train_seeds(experiment, 2, backend="loop", progress=False))
    assert sorted(outcome.seed for outcome in told) == [0, 1]
    if found.choice.backend == "stacked":
        assert "different lengths" in found.choice.reasons["stacked"]
    with pytest.raises(Unstackable, match="different lengths"):
        train_seeds(experiment, 2, backend="stacked", progress=False)


def test_auto_thinks_of_processes_when_there_is_much_to_do(seed, monkeypatch):
    from heedful.training import choice

    monkeypatch.setattr(choice, "STARTUP", 0.0)
    found = choice.choose(examples.experiment(epochs=1000), list(range(20)), workers=2)
    assert {"loop", "stacked", "processes", "processes, stacked"} == set(found.seconds)
    assert found.backend.startswith(min(found.seconds, key=found.seconds.get).partition(",")[0])
    local = choice.choose(
        examples.experiment(epochs=1000, loss=lambda m, b: examples.loss(m, b)), [0, 1], workers=2
    )
    assert "top of a module" in local.reasons["processes"]
    one = choice.choose(examples.experiment(epochs=1000), [0, 1], workers=1)
    assert "one core" in one.reasons["processes"]


def test_stores_and_checkpoints_by_seed(tmp_path, seed):
    class Store(list):
        def log(self, step, **numbers):
            self.append((step, numbers))

    logged = {}
    for backend in ("loop", "stacked"):
        stores = {n: Store() for n in SEEDS}
        train_seeds(examples.experiment(epochs=2), SEEDS, backend=backend, store=stores.get, progress=False)
        logged[backend] = stores
    for n in SEEDS:
        for (step, row), (other, twin) in zip(logged["loop"][n], logged["stacked"][n], strict=True):
            assert step == other and row == pytest.approx(twin, rel=1e-7)
    first = train_seeds(examples.experiment(epochs=2), SEEDS, checkpoint=tmp_path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-11", "seed-3", "seed-4"]
    again = train_seeds(examples.experiment(epochs=2), SEEDS, checkpoint=tmp_path, progress=False)
    assert [o.history.steps for o in first] == [o.history.steps for o in again]


def test_outcomes_read_well(seed):
    found = train_seeds(examples.experiment(epochs=1), 2, backend="loop", progress=False)
    assert found.column("val_loss") == [o.test["val_loss"] for o in found]
    assert repr(found).startswith("seed 0: epoch 1") and "\nseed 1" in repr(found)
    with pytest.raises(KeyError, match=r"'speed'.*val_loss"):
        found.column("speed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(found.frame(), pandas.DataFrame) and list(found.frame().seed) == [0, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda e: train_seeds(e, 0), "at least one"),
        (lambda e: train_seeds(e, []), "at least one"),
        (lambda e: train_seeds(e, [1, 2, 1]), "given twice"),
        (lambda e: train_seeds(e, 2, backend="threads"), "'threads'; it takes auto, loop"),
        (lambda e: train_seeds(e, 2, workers=0), "workers is 0"),
        (lambda e: train_seeds(e, 2, backend="stacked", checkpoint="x"), "goes with the loop"),
        (lambda e: train_seeds(examples.experiment(model=dict), 2, backend="loop"), "must make an nn.Module"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(examples.experiment(epochs=1))


def test_experiments_are_checked_like_train():
    with pytest.raises(TypeError, match="missing"):
        Experiment(model=examples.build)
    for backend in ("loop", "stacked"):
        for wrong in ({"steps": 3}, {"epochs": None}):
            with pytest.raises(ValueError, match="epochs, or steps"):
                train_seeds(examples.experiment(**wrong), 2, backend=backend, progress=False)
        with pytest.raises(TypeError, match=r"'all' as a tensor of shape \(48,\)"):
            wrong = examples.experiment(evaluate=lambda m: {"all": m(examples.X)[:, 0]})
            train_seeds(wrong, 2, backend=backend, progress=False)


class Clock:
    """Stands in for the time: a step takes what it is told to."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def two_threads(monkeypatch):
    """Takes steps that last `seconds(threads)`; returns the threads they were taken on."""
    clock, before = Clock(), torch.get_num_threads()
    monkeypatch.setattr("heedful.training.threads.time", clock)
    torch.set_num_threads(2)

    def steps(threads, count, seconds):
        used = []
        for _ in range(count):
            with threads.step():
                used.append(torch.get_num_threads())
                clock.now += seconds[used[-1]]
        return used

    yield steps
    torch.set_num_threads(before)


@pytest.mark.parametrize("faster", [1, 2])
def test_threads_are_tried_and_left_as_they_were(faster, two_threads):
    """Steps that are slow on one of the two are taken on the other, but for a fiftieth of the time."""
    seconds = {faster: 1.0, 3 - faster: 2.0}
    with Threads() as threads:
        used = two_threads(threads, 11, seconds)
        assert threads.chosen == faster and used == [2] * 6 + [1] * 5
        used = two_threads(threads, 2000, seconds)
        assert threads.chosen == faster
        assert 0 < used.count(3 - faster) <= 0.021 * 2000
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("faster", [1, 2])
def test_threads_follow_a_machine_that_changes(faster, two_threads):
    with Threads() as threads:
        two_threads(threads, 100, {faster: 1.0, 3 - faster: 1.3})
        assert threads.chosen == faster
        used = two_threads(threads, 200, {faster: 1.3, 3 - faster: 1.0})
        assert threads.chosen == 3 - faster and set(used[110:140]) == {3 - faster}


def test_one_thread_is_not_timed(monkeypatch, two_threads):
    torch.set_num_threads(1)
    assert set(two_threads(Threads(), 50, {1: 1.0})) == {1}
    torch.set_num_threads(2)
    assert set(two_threads(Threads(worth=False), 50, {1: 1.0, 2: 2.0})) == {2}


@pytest.mark.parametrize("epochs", [1, 8, 37])
def test_numbers_that_come_late_are_written_down_in_order(epochs, seed, monkeypatch):
    """As on a GPU, which a stack is ahead of: the history is the loop's all the same."""
    monkeypatch.setattr(stacked, "looks", lambda device: False)
    experiment = examples.experiment(
        model=lambda: nn.Linear(6, 3),
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        batches=[(examples.X.float(), examples.Y)],
        evaluate=None,
        test=None,
        with_optimizer="SGD",
        epochs=epochs,
    )
    loop, stack = (
        train_seeds(experiment, [seed, seed + 1], backend=name, progress=False)
        for name in ("loop", "stacked")
    )
    for one, other in zip(loop, stack, strict=True):
        assert [row["step"] for row in other.history.epochs] == list(range(1, epochs + 1))
        for rows in ("steps", "epochs"):
            a, b = (outcome.history.column("loss", rows) for outcome in (one, other))
            assert a == pytest.approx(b, rel=1e-4)
