"""Row kernels over threads: every row once, errors told, torch's threads or our own, also after a fork."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import pytest
import torch

from heedful import Graph
from heedful.kernels import parallel


@pytest.fixture(params=["torch's threads", "our own"])
def two_threads(request, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(parallel, "WORTH_A_THREAD", 0)
    if request.param == "our own":
        monkeypatch.setattr(parallel, "_openmp", lambda: None)
    elif parallel._openmp() is None:
        pytest.skip("this torch has no OpenMP to borrow threads from")
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("parts", [1, 2, 7, 12])
@pytest.mark.parametrize("shape", ["none", "empty", "even", "hub first", "hub last", "one row"])
def test_pieces_cover_every_row_once(parts, shape, seed):
    degrees = {
        "none": [],
        "empty": [0] * 30,
        "even": [3] * 100,
        "hub first": [1000] + [0] * 500,
        "hub last": [0] * 500 + [1000],
        "one row": [5],
    }[shape]
    rowptr = np.cumsum([0, *degrees]).astype(np.int32)
    pieces = parallel.split_rows(rowptr, parts)
    assert [i for first, last in pieces for i in range(first, last)] == list(range(len(degrees)))
    longest = max(1, -(-len(degrees) // parts))
    assert all(0 < last - first < 2 * longest or last - first == 1 for first, last in pieces)


def test_every_row_is_visited_once(two_threads):
    visits, lock, seen = np.zeros(1000, int), threading.Lock(), set()

    def kernel(first, last, rowptr):
        with lock:
            visits[first:last] += 1
            seen.add(threading.get_ident())

    parallel.over_rows(kernel, np.arange(0, 5005, 5), work=1)
    assert (visits == 1).all()


def test_errors_reach_the_caller(two_threads):
    def kernel(first, last, rowptr):
        if last == 100:
            raise FloatingPointError("the last piece")

    with pytest.raises(FloatingPointError, match="the last piece"):
        parallel.over_rows(kernel, np.arange(101), work=1)


def test_two_callers_at_once(two_threads, seed):
    graphs = [Graph.from_edge_index(torch.randint(200, (2, 2000)), nodes=200) for _ in range(2)]
    inputs = [torch.randn(200, 16) for _ in range(2)]
    expected = [graph.adjacency().float() @ x for graph, x in zip(graphs, inputs, strict=True)]
    found: dict[int, list] = {0: [], 1: []}

    def work(n):
        for _ in range(20):
            found[n].append(graphs[n].propagate(inputs[n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in (0, 1):
        assert len(found[n]) == 20
        for out in found[n]:
            torch.testing.assert_close(out, expected[n], rtol=1e-4, atol=1e-4)


def _in_child(graph, x, queue):
    torch.set_num_threads(2)
    queue.put(graph.propagate(x).sum().item())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork(two_threads, seed):
    """The parent's OpenMP workers are gone in the child: borrowing them would wait forever."""
    graph, x = Graph.from_edge_index(torch.randint(200, (2, 2000)), nodes=200), torch.randn(200, 16)
    here = graph.propagate(x).sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(graph, x, queue))
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive and child.exitcode == 0
    assert abs(queue.get(timeout=5) - here) <= 1e-3 * (1 + abs(here))
