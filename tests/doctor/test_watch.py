"""Watching changes nothing, leaves torch as it was, and finds what is wrong."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful import doctor
from heedful.doctor import watch as make


class Net(nn.Module):
    """Dropout and BatchNorm: what draws random numbers, and what keeps state."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
        )

    def forward(self, x):
        return self.layers(x)


def train(
    watched: bool,
    seed: int,
    tier: str = "normal",
    kind=torch.optim.Adam,
    steps: int = 30,
    scaler=False,
    autocast=False,
):
    """Weights, buffers and the state of the generator after a run."""
    torch.manual_seed(seed)
    model = Net()
    optimizer = kind(model.parameters(), lr=1e-2)
    x, y = torch.randn(64, 8), torch.randint(3, (64,))
    scale = torch.amp.GradScaler("cpu", enabled=scaler)

    def loop():
        for _ in range(steps):
            pick = torch.randint(64, (16,))
            optimizer.zero_grad()
            if kind is torch.optim.LBFGS:

                def closure(pick=pick):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(x[pick]), y[pick])
                    loss.backward()
                    return loss

                optimizer.step(closure)
                continue
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(model(x[pick]), y[pick])
            scale.scale(loss).backward()
            scale.unscale_(optimizer)
            # From a generator, which can be read but once.
            torch.nn.utils.clip_grad_value_((p for p in model.parameters()), 0.1)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scale.step(optimizer)
            scale.update()
        model.eval()
        with torch.no_grad():
            model(x)

    if watched:
        with make(model, optimizer, tier=tier) as seen:
            loop()
        seen.report()
    else:
        loop()
    return [*model.state_dict().values(), torch.get_rng_state(), torch.rand(3)]


@pytest.mark.parametrize("tier", ["light", "normal", "deep"])
def test_weights_are_bit_for_bit_those_of_the_unwatched_run(seed, tier):
    assert all(torch.equal(a, b) for a, b in zip(train(False, seed), train(True, seed, tier), strict=True))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS, torch.optim.RMSprop])
def test_so_with_other_optimizers(seed, kind):
    plain, watched = train(False, seed, kind=kind, steps=8), train(True, seed, kind=kind, steps=8)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


@pytest.mark.parametrize("mixed", [{"scaler": True}, {"autocast": True}, {"scaler": True, "autocast": True}])
def test_so_with_mixed_precision(seed, mixed):
    plain, watched = train(False, seed, **mixed), train(True, seed, **mixed)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_torch_is_left_as_it_was(seed):
    def state():
        return [
            nn.Module.__call__,
            nn.Module.zero_grad,
            torch.autograd.backward,
            torch.optim.Optimizer.zero_grad,
            torch.optim.Optimizer.__init__,
            torch.optim.lr_scheduler.LRScheduler.step,
            torch.optim.lr_scheduler.ReduceLROnPlateau.step,
            torch.nn.utils.clip_grad._clip_grads_with_norm_,
            torch.amp.GradScaler.scale,
            torch.utils.data.DataLoader.__iter__,
            dict(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks),
            dict(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks),
        ]

    before = state()
    with pytest.raises(ZeroDivisionError), doctor.watch() as seen:
        _ = 1 / 0
    assert state() == before
    assert seen.facts.raised == "ZeroDivisionError: division by zero"


def loop(model, optimizer, loss, steps=12, clear=True):
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def test_the_residual_is_exact(seed):
    """‖p.grad − fresh‖ / ‖fresh‖, computed by hand beside it."""
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    expected = []
    with make(model, optimizer, tier="deep") as seen:
        for _ in range(6):
            x = torch.randn(10, 5)
            value = model(x).square().mean()
            fresh = torch.cat(
                [g.flatten() for g in torch.autograd.grad(value, list(model.parameters()), retain_graph=True)]
            )
            value.backward()
            used = torch.cat([p.grad.flatten() for p in model.parameters()])
            expected.append(float((used - fresh).norm() / fresh.norm()))
            optimizer.step()
    (found,) = seen.facts.optimizers.values()
    assert found.stale == pytest.approx(expected[1:], rel=1e-3)


def test_a_finding_says_where_and_how(seed):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    with make(model, optimizer) as seen:
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    found = seen.report()["gradients-not-cleared"]
    assert found.severity == "serious" and found.measured > 0.5
    assert found.place is not None and found.place.file.endswith("test_watch.py")
    assert found.place.text == "loss.backward()"
    assert "+            optimizer.zero_grad()\n" in found.patch + "\n"
    text = str(seen.report())
    for words in ("Gradients are not cleared", "healthy: 0", "test_watch.py", "cause", "fix"):
        assert words in text


def test_a_loss_that_hangs_on_nothing_is_told(seed):
    """Where no gradient reaches anything at all."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    with make(model, optimizer) as seen:
        for _ in range(8):
            optimizer.zero_grad()
            loss = torch.tensor(F.cross_entropy(model(x), y).item(), requires_grad=True)
            loss.backward()
            optimizer.step()
    found = seen.report()["gradient-never-arrives"]
    assert "2 parameters took part" in found.what and "No parameter is behind the loss" in found.cause
    assert "+            loss = F.cross_entropy(model(x), y)\n" in found.patch + "\n"
    assert len(seen.report().losses) == 8


def test_steps_looked_at_are_counted_as_they_are(seed):
    """Both of two losses of each step have a softmax; ten steps, of which seven are looked at."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    with make(model, optimizer) as seen:
        for _ in range(10):
            optimizer.zero_grad()
            for half in (slice(20), slice(20, 40)):
                (F.cross_entropy(model(x[half]).sigmoid(), y[half]) / 2).backward()
            optimizer.step()
    assert seen.report()["double-softmax"].what.endswith("in 7 of 7 steps looked at")


def test_where_a_bad_value_began_is_told_where_it_was_seen(seed):
    from heedful.doctor.facts import Facts
    from heedful.doctor.rules.batches import not_finite

    facts = Facts(steps=3, losses=[(0, 1.0), (1, float("nan"))], bad_step=1)
    (found,) = not_finite(facts)
    assert found.what == "the loss of step 1 is not finite; where it began was not seen"


def test_pieces_that_were_cleared_are_not_counted(seed):
    """An epoch of 3 batches in pieces of 2: one is left over, and cleared before the next."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with make(model, optimizer, tier="deep") as seen:
        for _ in range(6):
            optimizer.zero_grad()
            for piece in (1, 2, 3):
                loss = F.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 1))
                loss.backward()
                if piece == 2:
                    optimizer.step()
                    optimizer.zero_grad()
    (found,) = seen.facts.optimizers.values()
    assert {count for count, _ in found.groups} == {2}
    assert "+                (loss / 2).backward()\n" in seen.report()["accumulation-not-divided"].patch


def test_probabilities_for_nll_loss_become_their_logarithms(seed):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    with make(model, optimizer) as seen:
        loop(model, optimizer, lambda: F.nll_loss(F.softmax(model(x), dim=1), y))
    found = seen.report()["double-softmax"]
    assert "in place of its logarithm" in found.what
    assert "F.nll_loss(F.log_softmax(model(x), dim=1), y)" in found.patch


@pytest.mark.parametrize("weighted", [True, False])
def test_leaks_are_asked_beside_targets_and_not_beside_inputs(seed, weighted):
    """A second input may say who may hear whom: then nothing is asked, and that is said."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def forward(self, x, y, weights):
            scores = self.layer(x)
            scores = scores - scores.mean(0)
            scores = scores * weights if weighted else scores
            return {"loss": F.cross_entropy(scores, y), "scores": scores}

    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make(model, optimizer) as seen:
        loop(
            model,
            optimizer,
            lambda: model(torch.randn(20, 8), torch.randint(2, (20,)), weights=torch.rand(20, 1))["loss"],
        )
    report = seen.report()
    assert ("batch-leak" in report) is not weighted
    assert weighted or report["batch-leak"].where == "Pooled"
    assert any("not asked: Pooled takes more than one input" in note for note in report.notes) is weighted


@pytest.mark.parametrize("clear", [True, False])
def test_a_closure_called_once_is_a_loop_like_any_other(seed, clear):
    """As Lightning's loops are, with any optimizer."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))

    def closure():
        if clear:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with make(model, optimizer) as seen:
        for _ in range(12):
            optimizer.step(closure)
    (found,) = seen.facts.optimizers.values()
    assert not found.closure and found.judged >= 10 and found.changes
    assert ("gradients-not-cleared" in seen.report()) is not clear


def test_of_two_optimizers_the_right_one_is_patched(seed):
    first, second = nn.Linear(8, 8), nn.Linear(8, 2)
    one, other = torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    with make() as seen:
        for _ in range(8):
            one.zero_grad()
            F.cross_entropy(second(first(x).relu()), y).backward()
            one.step()
            other.step()
    patch = seen.report()["gradients-not-cleared"].patch
    assert "+            other.zero_grad()\n" in patch + "\n" and "+            one.zero_grad()" not in patch


def test_healthy_is_quiet(seed):
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 8)
    y = x[:, :3].argmax(1)
    with make(model, optimizer) as seen:
        loop(model, optimizer, lambda: F.cross_entropy(model(x), y), 20)
    report = seen.report()
    assert report.findings == [] and report.healthy and "nothing wrong" in str(report)


def test_an_observer_that_fails_does_not_fail_the_run(seed, monkeypatch):
    monkeypatch.setattr("heedful.doctor.watching.reading.graph.walk", lambda root: 1 / 0)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make(model, optimizer) as seen:
        loop(model, optimizer, lambda: model(torch.randn(4, 8)).square().mean())
    assert any("ZeroDivisionError" in note for note in seen.report().notes)
    assert seen.facts.steps == 12


def test_a_model_can_be_saved_and_copied_while_watched(seed, tmp_path):
    import copy

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    with make(model, optimizer):
        loop(model, optimizer, lambda: F.cross_entropy(model(x), y), 3)
        torch.save(model, tmp_path / "model.pt")
        copy.deepcopy(model)(x)


def test_wrong_calls_are_told():
    with pytest.raises(ValueError, match="tier is 'slow'; it is light, normal, deep"):
        doctor.watch(tier="slow")
    with pytest.raises(TypeError, match="takes models and optimizers, got int"):
        doctor.watch(3)
