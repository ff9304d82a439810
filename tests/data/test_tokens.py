"""Text as numbers and back, by characters and by pieces."""

from __future__ import annotations

import json
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful import data
from heedful.data import Characters, Pieces, TextData, tokens_of

VERSE = "the cat sat on the mat, the rat on the hat; naïve 🐈\n" * 20


@pytest.fixture(scope="module")
def pieces():
    return Pieces.learned(VERSE, size=300)


@given(st.text(max_size=60))
def test_characters_come_back(text):
    letters = Characters(sorted(set(text)) or ["a"])
    assert letters.decode(letters.encode(text)) == text


def test_characters_are_what_a_text_uses(seed):
    text = TextData("verse", VERSE)
    letters = Characters(text.vocabulary)
    assert torch.equal(letters.encode(VERSE), text.codes) and letters.size == len(text.vocabulary)


def test_unknown_symbols_are_named_or_left_out():
    letters = Characters("abc", "the alphabet")
    with pytest.raises(ValueError, match=r"2 symbols are not among the 3 of the alphabet: 'x' '€'"):
        letters.encode("a€bxx")
    assert letters.encode("a€bxx", unknown="skip").tolist() == [0, 1]
    assert letters.encode("€", unknown="skip").tolist() == [] == letters.encode("").tolist()
    with pytest.raises(ValueError, match="unknown='ignore' must be 'error' or 'skip'"):
        letters.encode("a", unknown="ignore")


@given(text=st.text(max_size=60))
def test_pieces_spell_anything(text, pieces):
    text = text.encode("utf-8", "ignore").decode()  # half a character is no text
    assert pieces.decode(pieces.encode(text)) == text


def test_pieces_are_fewer_than_characters(pieces):
    assert 256 < pieces.size <= 300
    assert len(pieces.encode(VERSE)) < 0.6 * len(VERSE)
    assert pieces.encode("").dtype == torch.int64 and len(pieces.encode("")) == 0
    with pytest.raises(ValueError, match="takes 257 or more"):
        Pieces.learned(VERSE, size=100)


def test_the_same_from_what_is_kept(pieces, seed):
    text = "".join(random.Random(seed).choices(VERSE, k=200))
    for tokens in (pieces, Characters(sorted(set(VERSE)))):
        again = tokens_of(json.loads(json.dumps(tokens.notes())))
        assert torch.equal(again.encode(text), tokens.encode(text)) and again.size == tokens.size
    with pytest.raises(ValueError, match="neither symbols nor pieces"):
        tokens_of({"classes": ["cat"]})


def test_without_tokenizers_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'heedful\[text\]'"):
        data.Pieces.learned(VERSE, size=300)
