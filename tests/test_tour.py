"""The tour: what it claims holds for any seed; it draws its figure, and fails when something is wrong."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from heedful import cli, tour


def test_every_equivalence_holds(seed):
    found = tour.equivalences(seed)
    assert len(found) == len(tour.EQUIVALENCES) >= 8
    for entry in found:
        assert entry.holds, f"{entry.claim}: {entry.residual}"


def test_the_whole_tour(tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "LENGTHS", [16, 32, 64])
    console = Console(file=io.StringIO(), width=120)
    found = tour.tour(tmp_path / "out", console)
    text = console.file.getvalue()
    assert found.holds
    assert f"{len(tour.EQUIVALENCES)} of {len(tour.EQUIVALENCES)} equivalences hold" in text
    assert "Next steps" in text and "heedful explain" in text
    for plan in found.plans:
        assert str(plan) in text
    assert {plan.strategy for plan in found.plans} >= {"factored", "sparse"}
    assert found.figure.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in found.figure.with_suffix(".svg").read_text()


def test_the_crossing_is_where_the_lines_meet():
    lengths = [10, 100, 1000]
    assert tour._crossing(lengths, {"a": [1, 100, 10_000], "b": [10, 100, 1000]}) == pytest.approx(100)
    assert tour._crossing(lengths, {"a": [1, 10, 1000], "b": [10, 100, 100]}) == pytest.approx(100 * 10**0.5)
    assert tour._crossing(lengths, {"a": [1, 1, 1], "b": [2, 2, 2]}) is None


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(tour, "LENGTHS", [16, 32])
    monkeypatch.setattr(tour, "plans", lambda: [])


def test_the_exit_status_says_whether_it_holds(capsys, tmp_path, monkeypatch, short):
    assert cli.main(["tour", "--output", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] and len(found["equivalences"]) == len(tour.EQUIVALENCES)

    def wrong(generator):
        """one = two"""
        return torch.ones(1), "nobody", 2 * torch.ones(1)

    def undefined(generator):
        """one = not a number"""
        return torch.full((1,), torch.nan), "nobody", torch.ones(1)

    for bad in (wrong, undefined):
        monkeypatch.setattr(tour, "EQUIVALENCES", [tour.softmax_attention, bad])
        assert cli.main(["tour", "--output", str(tmp_path)]) == 1
        assert "1 of 2 equivalences hold" in capsys.readouterr().out
