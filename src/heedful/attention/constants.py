"""What a unit of cost takes on a device: shipped defaults, or what `heedful calibrate` measured here.

The time of a pass is modelled as   base + launches·a + flops·b + bytes·c   with (base, a, b, c) for each
strategy and direction, because one strategy's multiply-adds (a large matrix product) are not another's (a
gather along edges).
"""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from .cost import Cost

TERMS = ("base", "launch", "flop", "byte")
HALF = " in half precision"  # what a strategy takes there, where that was measured apart: tensor cores
_SHIPPED = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Constants:
    """Seconds a unit, by strategy, then "forward" or "backward", in the order of TERMS."""

    device: str
    calibrated: bool
    seconds: dict[str, dict[str, tuple[float, ...]]]
    memory: float  # bytes a call may hold before the planner looks for another way

    def time(self, flavor: str, direction: str, cost: Cost, item: int) -> float:
        # A strategy of the user's own is taken to work like the plainest of ours.
        known = self.seconds.get(flavor, self.seconds["reference"])
        if item == 2:
            known = self.seconds.get(flavor + HALF, known)
        base, launch, flop, byte = known[direction]
        width = 2.0 if item == 8 else 1.0  # float64 halves the arithmetic rate
        return base + cost.launches * launch + cost.flops * width * flop + cost.bytes * byte


def device_name(device: str) -> str:
    """What calibrations are filed under: the chip and, on a CPU, how many threads torch uses."""
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} {_cpu_model()}, {torch.get_num_threads()} threads"


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "CPU"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")


def calibration_file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("heedful") / "calibration.json"


def constants(device: str) -> Constants:
    """The constants for a device type, calibrated ones first."""
    return _constants(device, torch.get_num_threads())


@cache
def _constants(device: str, threads: int) -> Constants:
    shipped = json.loads(_SHIPPED.read_text())
    own = _load_calibrations().get(device_name(device))
    seconds = _table(shipped["cpu"])
    for table in (shipped.get(device, {}), own or {}):  # what was not measured stays as shipped
        for strategy, directions in _table(table).items():
            like = seconds.get(strategy.removesuffix(HALF), seconds["reference"])
            seconds[strategy] = {**seconds.get(strategy, like), **directions}
    return Constants(device_name(device), own is not None, seconds, _memory(device))


def _memory(device: str) -> float:
    if device == "cuda" and torch.cuda.is_available():
        return 0.5 * torch.cuda.mem_get_info()[1]
    try:
        return 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * 2.0**30


def _table(seconds: dict) -> dict[str, dict[str, tuple[float, ...]]]:
    """The numbers of a calibration; a ValueError if some are missing or make no sense."""
    table = {}
    for strategy, directions in seconds.items():
        table[strategy] = {direction: tuple(map(float, terms)) for direction, terms in directions.items()}
        for terms in table[strategy].values():
            if len(terms) != len(TERMS) or not all(0 <= term < math.inf for term in terms):
                raise ValueError(f"calibration of {strategy}: {terms} should be {len(TERMS)} times.")
    return table


def _read_file() -> dict:
    """What the file holds, by device. One that cannot be read is as good as none."""
    try:
        found = json.loads(calibration_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _load_calibrations() -> dict:
    """Everything measured on this machine. An entry that makes no sense is as good as none."""
    known = {}
    for device, entry in _read_file().items():
        try:
            known[device] = _table(entry["seconds"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return known


def save_calibration(device: str, entry: dict) -> Path:
    """Keep a calibration, whole or not at all."""
    path = calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    everything = {**_read_file(), device_name(device): entry}
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "w") as handle:
            json.dump(everything, handle, indent=1)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    forget()
    return path


def forget() -> None:
    """Read constants from disk again, and plan anew."""
    from .plan import forget_plans

    _constants.cache_clear()
    forget_plans()
