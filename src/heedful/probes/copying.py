"""What a text copies from a book: its longest stretch that stands there letter for letter.

The book's endings are sorted once, in O(n log² n); of a text of m letters, each place is then looked up among
them by bisection, in O(log n) comparisons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Copy:
    """The longest stretch of a text that is in a book: how long, where in the text, where in the book."""

    length: int
    start: int
    place: int
    share: float  # of the text; 1 is verbatim

    @property
    def verbatim(self) -> bool:
        """Whether all of the text is in the book."""
        return self.share == 1


def copied(texts: Sequence[str], book: str) -> list[Copy]:
    """The longest copy in each text.

    >>> copied(["the cat sat down", "on"], "once the cat sat on a mat")
    [Copy(length=12, start=0, place=5, share=0.75), Copy(length=2, start=0, place=17, share=1.0)]
    """
    if isinstance(texts, str):
        raise TypeError("copied(): takes several texts; put the one into a list.")
    order = _sorted_endings(book)
    return [_longest(text, book, order) for text in texts]


def _longest(text: str, book: str, order: Sequence[int]) -> Copy:
    best = Copy(0, 0, 0, 0.0)
    for start in range(len(text)):
        if len(text) - start <= best.length:
            break  # too little is left to be longer
        length, place = _common(text[start:], book, order)
        if length > best.length:
            best = Copy(length, start, place, length / len(text))
    return best


def _common(text: str, book: str, order: Sequence[int]) -> tuple[int, int]:
    """The longest beginning of `text` in the book, and its place: endings next to it share most with it."""
    found = bisect_left(order, text, key=lambda place: book[place : place + len(text)])
    near = [order[n] for n in (found - 1, found) if 0 <= n < len(order)]
    return max(((_shared(text, book, place), place) for place in near), default=(0, 0))


def _shared(text: str, book: str, place: int) -> int:
    other = book[place : place + len(text)]
    return next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), len(other))


def _sorted_endings(book: str) -> list[int]:
    """Where the endings of the book begin, in alphabetical order; by doubling what they are sorted by."""
    n = len(book)
    rank = np.frombuffer(book.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64) + 1
    order = np.argsort(rank, kind="stable")
    length = 1
    while length < n:
        after = np.zeros(n, dtype=np.int64)  # what ended comes first
        after[: n - length] = rank[length:]
        pair = rank * (max(n, int(rank.max())) + 2) + after
        order = np.argsort(pair, kind="stable")
        fresh = np.concatenate([[True], np.diff(pair[order]) > 0])
        rank[order] = np.cumsum(fresh)
        if rank[order[-1]] == n:
            break
        length *= 2
    return order.tolist()
