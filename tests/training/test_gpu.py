"""On a CUDA device: the loop in every precision, stacks equal to the loop, checkpoints that go on to the
bit.
"""

import math
import warnings
from dataclasses import replace

import pytest
import torch
import training_examples as examples
from torch import nn
from torch.nn import functional as F

from heedful import Graph
from heedful.models import GAT, GCN
from heedful.training import Batches, Checkpoint, train, train_seeds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def net():
    """Without a bias that batch norm takes out again: its gradient is rounding, which Adam makes steps of."""
    first = nn.Linear(6, 32, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)).cuda()


def rows():
    return examples.X.float().cuda(), examples.Y.cuda()


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def evaluate(model):
    return {"val_loss": loss(model, rows())}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_it_learns(precision, seed):
    torch.manual_seed(seed)
    model = net()
    history = train(
        model,
        loss,
        Batches(*rows(), size=16),
        torch.optim.Adam(model.parameters(), lr=0.02),
        epochs=30,
        precision=precision,
        clip=1.0,
        evaluate=evaluate,
        progress=False,
    )
    assert len(history.steps) == 90 and history.last["val_loss"] < history.epochs[0]["val_loss"]


def test_a_loss_that_is_no_number_is_found_where_it_was(seed):
    model, calls = net(), []

    def broken(model, batch):
        calls.append(0)
        return loss(model, batch) * (math.nan if len(calls) >= 5 else 1)

    with pytest.raises(FloatingPointError, match=r"nan at step 5 \(epoch 5\)"):
        train(model, broken, [rows()], torch.optim.SGD(model.parameters(), lr=0.1), epochs=99, progress=False)
    assert len(calls) <= 5 + 16  # nobody waited for each number


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_it_goes_on_to_the_bit(precision, tmp_path, seed):
    def run(folder, stop_at=None):
        torch.manual_seed(seed)
        model = net()

        def interrupt(now):
            if now.step == stop_at:
                raise KeyboardInterrupt

        history = train(
            model,
            loss,
            Batches(*rows(), size=16, seed=seed),
            torch.optim.AdamW(model.parameters(), lr=0.02),
            epochs=6,
            precision=precision,
            callbacks=[interrupt],
            checkpoint=None if folder is None else Checkpoint(folder, every=2),
            progress=False,
        )
        return (
            history.steps,
            [t.tolist() for t in model.state_dict().values()],
            torch.rand(3, device="cuda").tolist(),
        )

    expected = run(None)
    for stop_at in (3, 9, 14):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, stop_at)
    assert run(tmp_path) == expected


def test_stacked_is_the_loop(seed):
    """The same masks: a stack draws from each seed's own CUDA generator."""
    experiment = examples.experiment(
        model=net, loss=loss, batches=[rows()], evaluate=evaluate, test=None, with_optimizer="SGD", epochs=5
    )
    loop, stacked = (
        train_seeds(experiment, [seed, seed + 1, seed + 2], backend=name, progress=False)
        for name in ("loop", "stacked")
    )
    for a, b in zip(loop, stacked, strict=True):
        assert a.history.column("loss", "steps") == pytest.approx(b.history.column("loss", "steps"), rel=1e-4)
        assert a.history.column("val_loss") == pytest.approx(b.history.column("val_loss"), rel=1e-4)


def run(capture, seed, *, epochs=8, size=16, stop=None, model=None, **options):
    torch.manual_seed(seed)
    model = model or net()
    history = train(
        model,
        loss,
        Batches(*rows(), size=size, seed=seed) if size else [rows()],
        torch.optim.Adam(model.parameters(), lr=0.02, fused=True),
        epochs=epochs,
        evaluate=evaluate,
        progress=False,
        capture=capture,
        **options,
    )
    return history, torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("size", [16, 7, None])  # 7 leaves a smaller last batch, None is the full batch
def test_captured_is_as_usual(size, seed):
    """The same numbers, dropout and all, for batches that change and for one that stays."""
    (usual, weights), (recorded, others) = (
        run(capture, seed, size=size, clip=1.0) for capture in (False, True)
    )
    assert recorded.column("loss", "steps") == pytest.approx(usual.column("loss", "steps"), rel=1e-3)
    assert recorded.column("val_loss") == pytest.approx(usual.column("val_loss"), rel=1e-3)
    assert (weights - others).norm() <= 1e-3 * weights.norm()


def test_recorded_evaluations_see_new_weights(seed):
    """Autocast keeps copies of weights for a while; a recording must not go on reading old ones."""
    (usual, _), (recorded, _) = (
        run(capture, seed, epochs=12, precision="bfloat16") for capture in (False, True)
    )
    assert recorded.column("val_loss") == pytest.approx(usual.column("val_loss"), rel=2e-2)


def test_recorded_evaluations_draw_what_comes_next(seed):
    """An evaluation with random numbers of its own, between steps with theirs."""
    data = rows()

    def noisy(model):
        return {"val_loss": loss(model, data), "noise": torch.rand((), device="cuda")}

    def run(capture):
        torch.manual_seed(seed)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        history = train(
            model, loss, [data], optimizer, epochs=9, evaluate=noisy, progress=False, capture=capture
        )
        return history.column("noise"), history.column("loss", "steps")

    (noise, losses), (others, recorded) = run(False), run(True)
    assert noise == others
    assert recorded == pytest.approx(losses, rel=1e-3)


def test_a_step_that_waits_is_taken_as_usual(seed):
    def waits(model, batch):
        value = loss(model, batch)
        return value * (1 if value.item() < 1e9 else 0)

    model = net()
    with pytest.warns(UserWarning, match="cannot be recorded"):
        history = train(
            model, waits, [rows()], torch.optim.SGD(model.parameters(), lr=0.1), epochs=9, progress=False,
            capture=True,
        )  # fmt: skip
    assert len(history.steps) == 9 and history.steps[-1]["loss"] < history.steps[0]["loss"]


def test_captured_follows_the_rate(seed):
    """A rate changed by a callback is not the recorded one."""

    def slower(now):
        if now.row is None and now.step == 8:
            now.optimizer.param_groups[0]["lr"] = 0.001

    usual, recorded = (
        run(capture, seed, size=None, epochs=16, callbacks=[slower]) for capture in (False, True)
    )
    assert recorded[0].column("loss", "steps") == pytest.approx(usual[0].column("loss", "steps"), rel=1e-3)
    assert (usual[1] - recorded[1]).norm() <= 1e-3 * usual[1].norm()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_captured_follows_a_schedule(name, seed):
    """Rates are read from the GPU, so that one recording serves for all; the optimizer keeps its numbers."""

    def run(capture):
        torch.manual_seed(seed)
        model = net()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="train")
            history = train(
                model, loss, Batches(*rows(), size=16, seed=seed), optimizer, epochs=6, schedule=schedule,
                capture=capture, progress=False,
            )  # fmt: skip
        assert type(optimizer.param_groups[0]["lr"]) is float
        return history.column("loss", "steps"), optimizer.param_groups[0]["lr"]

    (usual, rate), (recorded, other) = run(False), run(True)
    assert recorded == pytest.approx(usual, rel=1e-3) and rate == pytest.approx(other)


def test_captured_with_a_schedule_goes_on_from_a_checkpoint(tmp_path, seed):
    def run(folder, epochs):
        torch.manual_seed(seed)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        feed = Batches(*rows(), size=16, seed=seed)
        history = train(
            model, loss, feed, optimizer, epochs=epochs, schedule=schedule, capture=True, progress=False,
            checkpoint=folder,
        )  # fmt: skip
        return history.column("loss", "steps")

    whole = run(tmp_path / "whole", 8)
    run(tmp_path / "parts", 4)
    assert run(tmp_path / "parts", 8) == pytest.approx(whole, rel=1e-3)


def test_a_momentum_that_changes_is_said(seed):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    with pytest.warns(UserWarning, match="momentum"):
        train(model, loss, [rows()], optimizer, epochs=8, schedule=schedule, capture=True, progress=False)


def test_what_is_compiled_can_be_recorded(seed):
    """Batches that are views: laid out otherwise, the recording's own would be compiled anew within it."""
    torch.compiler.reset()  # where others had compiled eight of nn.Sequential, it would be left uncompiled
    x, y = rows()
    wide = torch.cat([x, x], 1)
    views = [(wide[start::3, :6], y[start::3]) for start in range(3)]

    def run(capture):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()
        compiled = torch.compile(model, dynamic=False)
        history = train(
            model,
            lambda model, batch: F.cross_entropy(compiled(batch[0]), batch[1]),
            views,
            torch.optim.AdamW(model.parameters(), lr=0.02),
            epochs=6,
            capture=capture,
            progress=False,
        )
        return history.column("loss", "steps")

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="train")
        usual, recorded = run(False), run(True)
    assert recorded == pytest.approx(usual, rel=1e-3)


def test_random_numbers_survive_a_recording_that_breaks_off(seed):
    calls = []

    def waits_late(model, batch):
        calls.append(0)
        value = loss(model, batch)
        return value + 0 * value.item() if len(calls) == 3 else value  # while it is recorded

    model = net()
    with pytest.warns(UserWarning, match="cannot be recorded"):
        history = train(
            model, waits_late, [rows()], torch.optim.SGD(model.parameters(), lr=0.1), epochs=9, capture=True,
            progress=False,
        )  # fmt: skip
    assert len(history.steps) == 9
    assert torch.rand(5, device="cuda").unique().numel() == 5


def test_a_recorded_stack_learns(seed):
    """Without dropout a stack that is recorded gives what the loop gives; with it, seeds differ and learn."""

    def plain():
        return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()

    def dropping():
        return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)).cuda()

    for build in (plain, dropping):
        experiment = examples.experiment(
            model=build,
            loss=loss,
            batches=[rows()],
            evaluate=evaluate,
            test=None,
            with_optimizer="Adam",
            epochs=12,
        )
        loop = train_seeds(experiment, [seed, seed + 1, seed + 2], backend="loop", progress=False)
        stack = train_seeds(
            replace(experiment, capture=True), [seed, seed + 1, seed + 2], backend="stacked", progress=False
        )
        for a, b in zip(loop, stack, strict=True):
            one, other = a.history.column("loss", "steps"), b.history.column("loss", "steps")
            assert other[-1] < other[0]
            if build is plain:
                assert one == pytest.approx(other, rel=1e-3)


def papers(seed):
    """A small citation graph, its words as a sparse table, and classes."""
    made = torch.Generator().manual_seed(seed)
    graph = Graph.from_edges(*torch.randint(300, (2, 1500), generator=made).cuda(), nodes=300)
    words = (torch.rand(300, 100, generator=made) < 0.1).float()
    return Graph.from_dense(words.cuda()), graph, torch.randint(4, (300,), generator=made).cuda()


@pytest.mark.parametrize("build", [GAT, GCN])
def test_stacked_graph_layers_are_the_loop(build, seed):
    """Attention, words and dropout of all seeds as one, each seed's what it is alone."""
    words, graph, classes = papers(seed)
    experiment = examples.experiment(
        model=lambda: build(100, 8, 4).cuda(),
        loss=lambda model, _: F.cross_entropy(model(words, graph)[:50], classes[:50]),
        batches=[None],
        evaluate=lambda model: {"val_loss": F.cross_entropy(model(words, graph)[50:], classes[50:])},
        test=None,
        with_optimizer="SGD",
        epochs=5,
    )
    loop, stacked = (
        train_seeds(experiment, [seed, seed + 1, seed + 2], backend=name, progress=False)
        for name in ("loop", "stacked")
    )
    for a, b in zip(loop, stacked, strict=True):
        assert a.history.column("loss", "steps") == pytest.approx(b.history.column("loss", "steps"), rel=1e-4)
        assert a.history.column("val_loss") == pytest.approx(b.history.column("val_loss"), rel=1e-4)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_recorded_stack_of_graph_layers_learns(dropout, seed):
    words, graph, classes = papers(seed)
    experiment = examples.experiment(
        model=lambda: GAT(100, 8, 4, dropout=dropout).cuda(),
        loss=lambda model, _: F.cross_entropy(model(words, graph), classes),
        batches=[None],
        evaluate=None,
        test=None,
        with_optimizer="Adam",
        epochs=12,
    )
    loop = train_seeds(experiment, [seed, seed + 1], backend="loop", progress=False)
    stack = train_seeds(
        replace(experiment, capture=True), [seed, seed + 1], backend="stacked", progress=False
    )
    for a, b in zip(loop, stack, strict=True):
        one, other = a.history.column("loss", "steps"), b.history.column("loss", "steps")
        assert other[-1] < other[0]
        if not dropout:
            assert one == pytest.approx(other, rel=1e-3)
