"""When to stop: the rules of the studies, written out beside."""

import math
import random

import pytest

from heedful.training import Patience


def test_padding_stops_at_the_ninth_epoch_without_improvement(seed):
    draw = random.Random(seed)
    for _ in range(50):
        rule, best, since = Patience(9, val_loss="min"), math.inf, 0
        while True:
            loss = draw.choice([draw.random(), math.nan, best])
            verdict = rule.update({"val_loss": loss, "other": 1.0})
            improved = loss < best
            best, since = (loss, 0) if improved else (best, since + 1)
            assert verdict.best == improved and verdict.stop == (since == 9)
            if verdict.stop:
                break


def test_gat_waits_for_either_and_keeps_both(seed):
    """As the authors wrote it."""
    draw = random.Random(seed)
    rule = Patience(5, val_loss="min", val_accuracy="max", ties=True)
    most, least, since = 0.0, math.inf, 0
    for _ in range(200):
        accuracy, loss = draw.randrange(1, 20) / 20, draw.randrange(20) / 20
        verdict, kept = rule.update({"val_loss": loss, "val_accuracy": accuracy}), False
        if accuracy >= most or loss <= least:
            kept = accuracy >= most and loss <= least
            most, least, since = max(accuracy, most), min(loss, least), 0
        else:
            since += 1
        assert verdict == (kept, since >= 5)


def test_no_patience_never_stops():
    rule = Patience(None, accuracy="max")
    assert [rule.update({"accuracy": n}).best for n in (1, 3, 2, 3, 4)] == [True, True, False, False, True]
    assert not any(rule.update({"accuracy": 0}).stop for _ in range(1000))


def test_it_goes_on_from_its_state():
    first, second = Patience(3, loss="min"), Patience(3, loss="min")
    for loss in (3.0, 2.0, 2.5):
        first.update({"loss": loss})
    second.restore(first.state())
    assert [second.update({"loss": 2.0}).stop for _ in range(2)] == [False, True]
    assert repr(second) == "Patience(3, loss='min')"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Patience(0, loss="min"), "patience is 0"),
        (lambda: Patience(3), "which metric"),
        (lambda: Patience(3, loss="lower"), "loss='lower'"),
        (lambda: Patience(3, loss="min").update({"val_loss": 1.0}), "no 'loss' among.*val_loss"),
        (lambda: Patience(3, a="min").restore(Patience(3, b="min").state()), "looks at a"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
