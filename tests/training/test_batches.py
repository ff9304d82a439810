"""Batches: every row once an epoch, an order that is the seed's alone, and a place that can be found
again.
"""

import pytest
import torch

from heedful.training import Batches, Windows


def rows(batches):
    return torch.cat(list(batches)).tolist()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_comes_once(shuffle, drop_last, seed):
    batches = Batches(torch.arange(23), size=5, shuffle=shuffle, drop_last=drop_last, seed=seed)
    for _ in range(3):
        sizes = [len(batch) for batch in batches]
        assert sizes == [5, 5, 5, 5] + [3] * (not drop_last) and len(batches) == len(sizes)
        found = rows(batches)
        assert len(set(found)) == len(found) and set(found) <= set(range(23))
        assert shuffle or found == list(range(len(found)))


def test_the_order_is_the_seeds_and_the_epochs(seed):
    x = torch.arange(50)
    one, other = Batches(x, size=7, seed=seed), Batches(x, size=7, seed=seed + 1)
    first, second = rows(one), rows(one)
    assert first != second and first != rows(other)
    torch.manual_seed(seed + 5)
    before = torch.get_rng_state()
    again = Batches(x, size=7, seed=seed)
    assert rows(again) == first and rows(again) == second
    assert torch.equal(torch.get_rng_state(), before)


def test_it_goes_on_from_anywhere(seed):
    x, y = torch.randn(31, 2), torch.arange(31)
    for replacement in (False, True):
        options = {"size": 4, "seed": seed, "replacement": replacement}
        whole = Batches(x, y, **options)
        expected = [batch for _ in range(3) for batch in whole]
        for place in range(len(expected)):
            first, given = Batches(x, y, **options), []
            while len(given) < place:
                for batch in first:
                    given.append(batch)
                    if len(given) == place:
                        break
            second = Batches(x, y, **options)
            second.restore(first.state())
            while len(given) < len(expected):
                given += list(second)
            for (a, b), (c, d) in zip(given, expected, strict=True):
                assert torch.equal(a, c) and torch.equal(b, d)


def test_an_epoch_left_in_the_middle_is_followed_by_another(seed):
    batches = Batches(torch.arange(40), size=4, seed=seed)
    first = next(iter(batches))
    assert len(rows(batches)) == 40
    assert torch.equal(first, next(iter(Batches(torch.arange(40), size=4, seed=seed))))


@pytest.mark.parametrize(
    "make", [lambda x, seed: Batches(x, size=4, seed=seed), lambda x, seed: Windows(x, 3, 4, seed=seed)]
)
def test_one_inside_another_keeps_its_own_place(make, seed):
    def given(batch):
        return (batch if isinstance(batch, torch.Tensor) else batch[0]).tolist()

    batches, apart = make(torch.arange(37), seed), make(torch.arange(37), seed)
    first, second = ([given(batch) for batch in apart] for _ in range(2))
    assert first != second
    pairs = [(given(a), given(b)) for a, b in zip(batches, batches, strict=True)]
    assert pairs == list(zip(first, second, strict=True))

    batches, outer = make(torch.arange(37), seed), []
    for batch in batches:
        outer.append(given(batch))
        within = [given(other) for _, other in zip(range(len(outer)), batches, strict=False)]
        assert len(within) == len(outer) and within != outer
        place = batches.state()
        assert (place["epoch"], place["position"]) == (0, len(outer))
    assert outer == first
    assert batches.state()["epoch"] == 1 + len(outer)  # what comes next is new


def test_replacement_draws_independently(seed):
    found = rows(Batches(torch.arange(1000), size=10, seed=seed, replacement=True))
    assert len(found) == 1000 and 560 < len(set(found)) < 700  # 632 ± 10 expected


def test_parts_together_are_the_whole(seed):
    whole = Batches(torch.arange(29), size=6, seed=seed)
    parts = [whole.share(part, 3) for part in range(3)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sorted(torch.cat(shares).tolist()) == sorted(batch.tolist())
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_windows(seed):
    text = torch.randint(87, (500,))
    windows = Windows(text, length=16, size=8, seed=seed, drop_last=True)
    assert len(windows) == (500 - 16) // 8
    for x, y in windows:
        assert x.shape == y.shape == (8, 16) and torch.equal(x[:, 1:], y[:, :-1])
    every = Windows(torch.arange(500), length=16, size=8, shuffle=False)
    assert torch.cat([x[:, 0] for x, _ in every]).tolist() == list(range(484))
    assert torch.cat([y[:, -1] for _, y in every]).tolist() == list(range(16, 500))
    once = Windows(torch.arange(500), length=16, size=8, replacement=False, seed=seed)
    assert sorted(torch.cat([x[:, 0] for x, _ in once]).tolist()) == list(range(484))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Batches(size=3), "takes tensors"),
        (lambda: Batches(torch.ones(3), torch.ones(4), size=3), r"\[3, 4\] rows"),
        (lambda: Batches(torch.ones(3), size=0), "size is 0"),
        (lambda: Batches(torch.ones(3), size=2.5), "size is 2.5"),
        (lambda: Batches(torch.ones(0), size=1), "no rows"),
        (lambda: Batches(torch.ones(3), size=2, replacement=True, shuffle=False), "shuffle=True"),
        (lambda: Batches(torch.ones(3), size=4, drop_last=True), "size ≤ 3"),
        (lambda: Batches(torch.ones(9), size=4).share(0, 2), "smallest batch has 1"),
        (lambda: Batches(torch.ones(9), size=3).share(3, 3), "part 3 of 3"),
        (lambda: Batches(torch.ones(9), size=3).restore(Batches(torch.ones(8), size=3).state()), "rows 8"),
        (lambda: Windows(torch.ones(5, 2), 3, 1), "one dimension"),
        (lambda: Windows(torch.ones(5), 5, 1), "longer"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
