"""`heedful data`: the same on a terminal and as JSON, one message for a mistake."""

from __future__ import annotations

import json

import pytest

from heedful import cli, data
from heedful.data import registry


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["data", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture
def toy(cache, server, entry_of, monkeypatch):
    server.pages["/words"] = b"some words"
    entry = entry_of(b"some words", f"{server.address}/words")
    monkeypatch.setitem(registry.DATASETS, "toy", entry)
    return entry


def test_list(capsys, cache):
    status, out, err = run(capsys, "list")
    assert (status, err) == (0, "") and all(name in out for name in data.names())
    assert run(capsys)[1] == out
    rows = json.loads(run(capsys, "list", "--json")[1])
    assert [row["name"] for row in rows] == data.names()
    states = {row["name"]: row["state"] for row in rows}
    assert states["karate"] == "built in" and states["mnist"] == "remote"


def test_fetch(capsys, cache, toy):
    assert json.loads(run(capsys, "list", "toy", "--json")[1])[0]["state"] == "remote"
    status, out, err = run(capsys, "fetch", "toy")
    assert (status, err) == (0, "") and "cached" in out and str(cache / "toy/words.txt") in out
    (row,) = json.loads(run(capsys, "fetch", "toy", "--json")[1])
    assert row["state"] == "cached" and row["at"] == str(cache / "toy/words.txt") and row["bytes"] == 10
    (cache / "toy/words.txt").write_text("some")
    assert json.loads(run(capsys, "list", "toy", "--json")[1])[0]["state"] == "damaged"
    assert run(capsys, "fetch", "toy", "karate")[0] == 0
    assert (cache / "toy/words.txt").read_text() == "some words"


def test_show(capsys, cache, toy):
    status, out, _ = run(capsys, "show", "toy", "cora")
    assert status == 0 and toy.files[0].sha256 in out and "Sen et al." in out and "terms: " in out
    (row,) = json.loads(run(capsys, "show", "toy", "--json")[1])
    assert row["files"][0]["sha256"] == toy.files[0].sha256 and row["terms"] == "none"


def test_offline(capsys, cache, server, toy):
    server.pages.clear()
    status, out, err = run(capsys, "fetch", "toy")
    assert status == 2 and out == "" and "Traceback" not in err
    assert "toy/words.txt is missing" in err and "HEEDFUL_DATA" in err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["fetch"], ["fetch what?", "heedful data fetch mnist"]),
        (["fetch", "minst"], ["unknown dataset 'minst'", "did you mean 'mnist'?"]),
        (["get", "mnist"], ["unknown action 'get'", "list, show, fetch"]),
        (["list", "--jsn"], ["unknown option '--jsn'", "did you mean '--json'?"]),
    ],
)
def test_mistakes(capsys, cache, arguments, words):
    status, out, err = run(capsys, *arguments)
    assert status == 2 and out == "" and err.startswith("heedful data: ") and err.count("\n") == 1
    assert not [word for word in words if word not in err]
