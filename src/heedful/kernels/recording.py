"""What a function tells the GPU, recorded as a CUDA graph: replayed, its kernels start as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recorded_in(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """What is told the GPU within goes into the graph.

    Torch sets the place in its random numbers to 0 on the stream that is recorded, and to the right one on
    ours when the graph is first replayed, and has neither wait for the other: on a busy GPU the 0 came last,
    and the first replay drew what had been drawn before.
    """
    with torch.cuda.graph(graph):
        yield
    torch.cuda.synchronize()


@contextmanager
def spare_numbers() -> Iterator[None]:
    """Random numbers are drawn from a copy of the GPU's generator, and the generator stays as it was.

    For a recording that may break off: the generator it began with takes itself to be recorded ever after.
    """
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        yield
    finally:
        generator.graphsafe_set_state(state)


def captured(step: Callable[[], Any], *, warm: int = 3) -> Callable[[], Any]:
    """step() as a CUDA graph. It is called `warm` times as it is, then once to be recorded; calling the
    result replays it and returns the tensors it returned then, with new numbers in them.

    Tensors it reads must stay where they are (write new numbers into them), and it must not wait for the GPU
    (`.item()`, `.cpu()`, `print`).

    >>> if torch.cuda.is_available():
    ...     x = torch.zeros(3, device="cuda")
    ...     double = captured(lambda: 2 * x)
    ...     _ = x.fill_(4)
    ...     assert double().tolist() == [8, 8, 8]
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    torch.clear_autocast_cache()  # copies of weights made while warming would be read, and never made anew
    with recorded_in(graph):
        found = step()
    torch.clear_autocast_cache()  # nor may anyone else read those that lie in the recording

    def replay():
        graph.replay()
        return found

    replay.step = step  # type: ignore[attr-defined]  # what it holds must live as long as the recording
    return replay
