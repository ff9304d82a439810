"""A studio over a store of toy runs, and a browser that was shown the token."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the studio needs heedful[studio]")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "lab")]


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def studio(runs):
    from visiting import browser

    with browser(runs) as client:
        yield client
