"""Two processes under torchrun end with what one ends with on the joint batches; the first one logs and
keeps.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn

from heedful.training import distributed, rank, ranks

SCRIPT = Path(__file__).with_name("together.py")
pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of two processes found, and what one alone did."""
    folder = tmp_path_factory.mktemp("together")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command in (launch, [sys.executable]):
        done = subprocess.run(
            [*command, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=600, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
    names = ("rank-0-of-2", "rank-1-of-2", "rank-0-of-1")
    return [json.loads((folder / f"{name}.json").read_text()) for name in names]


def assert_near(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(other[name]), msg=name, **tolerance)


NEAR = {"rtol": 1e-9, "atol": 1e-10}  # float64; the sums go in another order


@pytest.mark.parametrize("way", ["plain", "accumulated", "sharded", "sharded, accumulated"])
def test_two_are_one(way, found):
    """53 rows in batches of 10: the last has 3, two for the one process and one for the other."""
    first, second, alone = (part[way] for part in found)
    for part in (first, second):
        assert_near(part["weights"], alone["weights"], **NEAR)
    assert_near(first["best"], alone["best"], **NEAR)
    for rows in ("steps", "epochs"):
        for row, single in zip(first[rows], alone[rows], strict=True):
            assert row == pytest.approx(single, rel=1e-5)  # numbers to show are summed in float32
        assert first[rows] == second[rows]
    assert first["logged"] == len(alone["steps"]) + len(alone["epochs"]) and second["logged"] == 0


def test_the_ways_agree(found):
    plain, sharded = found[0]["plain"], found[0]["sharded"]
    assert_near(plain["weights"], sharded["weights"], **NEAR)


def test_an_interrupted_training_goes_on_with_every_process_as_it_was(found):
    """Each process's own random numbers are kept: with dropout the result is the same to the bit."""
    for part in found[:2]:
        assert part["resumed copied"]["weights"] == part["dropping"]["weights"]
        assert part["resumed copied"]["epochs"] == part["dropping"]["epochs"]
        assert_near(part["resumed split"]["weights"], part["sharded"]["weights"], rtol=1e-14, atol=1e-14)


def test_alone_nothing_happens(monkeypatch):
    model = nn.Linear(2, 2)
    assert distributed(model) is model and distributed(model, shard=True) is model
    assert (rank(), ranks()) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match=r"RANK.*start the script with torchrun"):
        distributed(model)
