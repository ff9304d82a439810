"""Remembering over a distance: what was said `lag` steps ago?"""

from __future__ import annotations

import numpy as np
import torch

from ..kinds import Examples, SequenceData

SILENCE = -100  # cross_entropy's ignore_index: nothing is asked here


def copying(
    *,
    lag: int = 10,
    length: int | None = None,
    symbols: int = 8,
    train: int = 2000,
    val: int = 500,
    test: int = 1000,
    seed: int = 0,
) -> SequenceData:
    """Symbols x_t at random; the label at place t is x_{t−lag}, and nothing is asked of the first `lag`.

    A memory shorter than `lag` cannot do better than 1/symbols. The length is 2·lag + 1 unless given.

    >>> pair = copying(lag=2, length=5).train
    >>> bool((pair.labels[:, 2:] == pair.inputs[:, :3]).all()), pair.labels[0, :2].tolist()
    (True, [-100, -100])
    """
    length = 2 * lag + 1 if length is None else length
    _check("copying()", lag, symbols, train, val, test)
    if length <= lag:
        raise ValueError(f"copying(): length={length} must be more than lag={lag}")
    draw = np.random.RandomState(seed)

    def part(count: int) -> Examples:
        said = torch.from_numpy(draw.randint(symbols, size=(count, length))).long()
        asked = torch.full_like(said, SILENCE)
        asked[:, lag:] = said[:, : length - lag]
        return Examples(said, asked)

    parts = (part(train), part(test), part(val))
    return SequenceData("copying", *parts, classes=_names(symbols), symbols=symbols, lag=lag)


def recall(
    *,
    lag: int = 10,
    symbols: int = 8,
    distractors: int = 8,
    train: int = 2000,
    val: int = 500,
    test: int = 1000,
    seed: int = 0,
) -> SequenceData:
    """A symbol, lag − 1 distractors, a question mark; the label is the symbol, `lag` steps back.

    Distractors are other symbols than those to remember, numbered after them, and the question mark comes
    last: symbols + distractors + 1 in all.

    >>> sets = recall(lag=3)
    >>> sets.train.inputs.shape, bool((sets.train.labels == sets.train.inputs[:, 0]).all()), sets.symbols
    (torch.Size([2000, 4]), True, 17)
    """
    _check("recall()", lag, symbols, train, val, test)
    if distractors < 1:
        raise ValueError(f"recall(): distractors={distractors} must be 1 or more")
    draw = np.random.RandomState(seed)

    def part(count: int) -> Examples:
        first = torch.from_numpy(draw.randint(symbols, size=count)).long()
        between = torch.from_numpy(symbols + draw.randint(distractors, size=(count, lag - 1))).long()
        question = torch.full((count, 1), symbols + distractors)
        return Examples(torch.cat([first.unsqueeze(1), between, question], dim=1), first)

    total = symbols + distractors + 1
    parts = (part(train), part(test), part(val))
    return SequenceData("recall", *parts, classes=_names(symbols), symbols=total, lag=lag)


def _check(where: str, lag: int, symbols: int, *counts: int) -> None:
    if lag < 1:
        raise ValueError(f"{where}: lag={lag} must be 1 or more")
    if symbols < 2:
        raise ValueError(f"{where}: symbols={symbols} must be 2 or more")
    if min(counts) < 1:
        raise ValueError(f"{where}: train, val and test must be 1 or more, got {counts}")


def _names(symbols: int) -> tuple[str, ...]:
    return tuple(map(str, range(symbols)))
