"""Generate: what a trained model writes, and what it copies."""

from __future__ import annotations

import json

import pytest
import torch
from visiting import browser, text

from heedful import lab
from heedful.studio import writing

SMALL = {"steps": 4, "every": 4, "size": "nano"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with a language model that has hardly learned, and its number on the pages."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    result = lab.run("fairytales", profile="quick", seeds=1, settings=SMALL, store=runs, backend="loop")
    assert not result.failures
    return runs, str(result.trials[0].id)


@pytest.fixture
def visitor(trained):
    with browser(trained[0]) as client:
        yield client


def stream(client, **given) -> list[tuple[str, object]]:
    """(kind, data) of every event."""
    blocks = client.get("/generate/events", params=given).text.strip().split("\n\n")
    found = []
    for block in blocks:
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


def test_tokens_stream_as_the_model_draws_them(visitor, trained, seed):
    given = {"model": trained[1], "prompt": "the ", "length": "12", "temperature": "0.7", "seed": str(seed)}
    *records, (kind, last), over = stream(visitor, **given)
    assert over == ("over", {}) and kind == "message" and last["book"] == "python-docs"
    found = lab.kept("latest", store=str(trained[0]), use="text")
    tokens = writing.data.tokens_of(found.notes)
    row = tokens.encode("the ").tolist()
    expected = found.model.generate(row, 12, temperature=0.7, seed=seed).tolist()[len(row) :]
    assert "".join(record["text"] for _, record in records) == tokens.decode(expected)
    for _, record in records:
        assert 0 < record["probability"] <= 1 and len(record["beat"]) == 4
        shares = [one["probability"] for one in record["beat"]]
        assert shares == sorted(shares, reverse=True) and sum(shares) + record["probability"] <= 1 + 1e-5


@pytest.mark.parametrize(
    "given, said",
    [
        ({"temperature": "-1"}, "temperature"),
        ({"prompt": "☃"}, "not among"),
        ({"length": "100000"}, "1 to 1000"),
        ({"length": "0"}, "1 to 1000"),
        ({"top_p": "2"}, "top_p"),
        ({"seed": "x"}, "whole number"),
        ({"model": "999"}, "no model"),
        ({"model": "../x"}, "no model"),
    ],
)
def test_wrong_wishes_are_told(visitor, trained, given, said):
    ((kind, words),) = stream(visitor, **{"model": trained[1], **given})
    assert kind == "problem" and said in words


def test_copies_are_found_and_are_copies(seed):
    book = "".join(chr(97 + int(n)) for n in torch.randint(26, (2000,)))
    said = "!" + book[100:140] + "?" + book[900:925] + "#" + book[5:15]
    assert writing.copies(said, book) == [(1, 40), (42, 25)]
    assert writing.copies(book[:19], book) == [] and writing.copies("", book) == []


def test_no_file_is_opened_because_a_model_names_it(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    assert writing.book(lab.Kept(None, {"text": str(secret)}, secret)) is None


def test_pages_without_a_model_say_what_to_do(studio):
    empty = studio.get("/generate")
    assert "Quick run of fairytales" in text(empty) and "<script" not in empty.text
    found = text(studio.get("/attention"))
    assert all(f"No run kept a {kind} yet" in found for kind in ("GPT", "ViT", "GAT"))
