"""How long a call takes and how much memory it holds, measured."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor


def seconds(
    function: Callable[[], object],
    *,
    least: float = 0.1,
    repeats: int = 3,
    device: str = "cpu",
    summary: Callable[[list[float]], float] = median,
) -> float:
    """The median time of a call (or another summary), over at least `repeats` calls and `least` seconds.

    One call before them warms up.
    """
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    function()
    wait()
    times: list[float] = []
    while len(times) < repeats or (sum(times) < least and len(times) < 200):
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    return summary(times)


def peak_memory(function: Callable[[], object], device: str = "cpu") -> float:
    """The most bytes torch had allocated at once during a call, beyond what was there before."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler announces itself on stderr
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profile.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return float(most)


def training_step(run: Callable[..., Tensor], tensors: list[Tensor]) -> Callable[[], object]:
    """A call that runs forward and backward on its own copies of the tensors."""
    leaves = [x.detach().requires_grad_() for x in tensors]

    def once():
        out = run(*leaves)
        return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    return once


def measure_candidates(plan, strategy, query, key, value, run) -> dict[str, tuple[float, float]]:
    """Time and peak memory of every candidate that can run, on the given tensors or random ones like them."""
    from .strategies import STRATEGIES, Strategy

    ways = dict(STRATEGIES)
    if isinstance(strategy, Strategy):
        ways[strategy.name] = strategy
    device = plan.problem.device
    if query.device.type == "meta":
        query, key, value = (torch.randn(x.shape, dtype=x.dtype, device=device) for x in (query, key, value))
    found = {}
    for candidate in plan.candidates:
        if candidate.reason:
            continue
        way = ways[candidate.name]
        if plan.problem.gradient:
            once = training_step(lambda q, k, v, way=way: run(way, q, k, v), [query, key, value])
        else:

            def once(way=way):
                with torch.no_grad():
                    return run(way, query, key, value)

        found[candidate.name] = (seconds(once, device=device), peak_memory(once, device))
    return found
