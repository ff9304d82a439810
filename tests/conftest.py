"""What all tests share: any seed, one thread a worker, and a cache that is not the user's."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

# Workers share the cores; before torch is imported, so that OpenMP hears of it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# What `heedful calibrate` measured on this machine must not decide a test, not in a subprocess either.
# Matplotlib keeps its list of fonts where it was, for it takes seconds to make.
_BEFORE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
os.environ.setdefault("MPLCONFIGDIR", os.path.join(_BEFORE, "matplotlib"))
_CACHE = tempfile.TemporaryDirectory(prefix="heedful-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

# Copies of the real datasets, where they lie beside the repository; tests that need them skip without.
_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
if _SHARED.is_dir():
    os.environ.setdefault("HEEDFUL_DATA", str(_SHARED))


def pytest_addoption(parser):
    parser.addoption(
        "--seed", type=int, default=None, help="seed of everything random in the tests (default: any)"
    )


def pytest_configure(config):
    given = config.getoption("--seed")
    if hasattr(config, "workerinput"):
        given = config.workerinput["seed"]
    config.seed = random.SystemRandom().randrange(2**31) if given is None else given
    import torch

    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    # Without a GPU, the GPU's kernels are tested in Triton's interpreter; Triton must hear of it first.
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """All workers take the controller's seed."""
    node.workerinput["seed"] = node.config.seed


def pytest_report_header(config):
    return f"seed: {config.seed} (repeat with --seed {config.seed})"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"--seed {item.config.seed}"))


@pytest.fixture
def seed(request) -> int:
    """The run's seed: a test must pass for any. torch is seeded with it."""
    import torch

    torch.manual_seed(request.config.seed)
    return request.config.seed


@pytest.fixture(autouse=True, scope="session")
def _own_calibration():
    """Where the cache folder does not follow XDG_CACHE_HOME (macOS, Windows), say it again."""
    from heedful.attention import constants

    before, constants.calibration_file = (
        constants.calibration_file,
        lambda: Path(_CACHE.name) / "calibration.json",
    )
    yield
    constants.calibration_file = before


# Studies run small: settings of their quick profile that change, and how many seeds show the effect.
SMALL = {
    "accumulation": ({}, 3),
    "autoencoders": ({}, 3),
    "cora": ({"epochs": 40}, 3),
    "cora-course": ({}, 3),
    "degradation": ({"epochs": 6}, 3),
    "extrapolation": ({"steps": 350}, 3),
    "fairytales": ({}, 3),
    "masked-autoencoders": ({}, 3),
    "memory": ({"lag": 50, "steps": 200}, 3),
    "noise": ({"epochs": 30}, 3),
    "oversmoothing": ({"epochs": 5}, 3),
    "padding": ({"epochs": 8}, 3),
    "rotation": ({"epochs": 6}, 3),
    "unet": ({}, 3),
    "vit": ({}, 3),
    "zero-grad": ({}, 3),
}


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """`small(name)`: the result of a study run small, in a store that all workers share: it runs once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runs"

    def run(name):
        from heedful import lab

        settings, seeds = SMALL[name]
        return lab.run(
            name, profile="quick", settings=settings, seeds=seeds, store=folder / name, backend="loop"
        )

    return run
