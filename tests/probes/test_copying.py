"""The longest stretch a text copies, against looking at every stretch there is."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.probes import copied


def naive(text: str, book: str) -> int:
    return max(
        (j - i for i in range(len(text)) for j in range(i + 1, len(text) + 1) if text[i:j] in book), default=0
    )


@given(st.lists(st.text("ab€", max_size=12), max_size=3), st.text("ab€", max_size=40))
def test_against_every_stretch(texts, book):
    for text, copy in zip(texts, copied(texts, book), strict=True):
        assert copy.length == naive(text, book)
        assert text[copy.start :][: copy.length] == book[copy.place :][: copy.length]
        assert copy.verbatim == (text != "" and text in book)


def test_a_planted_copy_is_found(seed):
    draw = random.Random(seed)
    book = "".join(draw.choices("abcdefgh ", k=3000))
    at, length = draw.randrange(2000), draw.randrange(30, 300)
    [copy] = copied(["!" * 17 + book[at : at + length] + "!"], book)
    assert (copy.length, copy.start, copy.place) == (length, 17, at)
    assert copy.share == pytest.approx(length / (length + 18)) and not copy.verbatim


def test_a_book_that_repeats_itself_takes_no_longer():
    """Quadratic work would take hours here."""
    start = time.process_time()
    [copy, other] = copied(["a" * 500, "a" * 499 + "b"], "a" * 200_000)
    assert (copy.length, other.length) == (500, 499)
    assert time.process_time() - start < 20


def test_one_text_is_not_many():
    with pytest.raises(TypeError, match="several texts"):
        copied("abc", "abcabc")
