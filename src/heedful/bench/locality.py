"""Nodes numbered next to those they listen to: what `Graph.local_order` brings.

Points in the plane listen to the sixteen nearest, and are numbered at random, as a list of customers or
papers is. Then they are numbered anew, and the same sums and the same GAT are taken over the same edges.
"""

from __future__ import annotations

import time

import torch

from .. import Additive, Graph, attend
from ..attention.measure import seconds, training_step

NEIGHBORS, HEADS, DIM = 16, 8, 8


def run(*, quick: bool, device: str):
    nodes = {"cpu": 200_000, "cuda": 2_000_000}[device] // (20 if quick else 1)
    torch.manual_seed(0)
    scattered = _nearest(nodes).to(device)
    begun = time.perf_counter()
    order = scattered.local_order()
    ordering = time.perf_counter() - begun
    graphs = {"at random": scattered, "next to each other": scattered.permute(order)}
    x = torch.randn(nodes, HEADS * DIM, device=device)
    table = torch.randn(HEADS, nodes, DIM + 2, device=device)
    features = {"at random": (x, table), "next to each other": (x[order], table[:, order])}
    apart = (graphs["next to each other"].propagate(x[order]) - scattered.propagate(x)[order]).abs().max()
    rows = []
    for what, graph in graphs.items():
        x, table = features[what]
        q, k, v = (part.contiguous() for part in table.split((1, 1, DIM), -1))

        def gat(q, k, v, graph=graph):
            return attend(q, k, v, similarity=Additive(), neighbors=graph)

        calls = {
            "sum ms": lambda graph=graph, x=x: graph.propagate(x),
            "GAT step ms": training_step(gat, [q, k, v]),
        }
        taken = {name: 1e3 * seconds(call, least=0.5, device=device) for name, call in calls.items()}
        distance = (graph.source - graph.target).abs().double().mean().item()
        rows.append({"numbered": what, "mean distance of an edge": distance, **taken})
    for name in ("sum", "GAT step"):
        for row in rows:
            row[f"{name}, times as fast"] = rows[0][f"{name} ms"] / row[f"{name} ms"]
    verdict = (
        f"{nodes:,} nodes numbered next to each other: sums {rows[1]['sum, times as fast']:.1f}×, a GAT step "
        f"{rows[1]['GAT step, times as fast']:.1f}×, the order found in {ordering:.1f} s, once; sums apart "
        f"by {apart:.1e}"
    )
    return rows, verdict, None


def _nearest(nodes: int) -> Graph:
    from scipy.spatial import KDTree

    points = torch.rand(nodes, 2, dtype=torch.float64).numpy()
    _, near = KDTree(points).query(points, NEIGHBORS + 1)
    source = torch.from_numpy(near[:, 1:]).flatten()
    return Graph.from_edges(source, torch.arange(nodes).repeat_interleave(NEIGHBORS), nodes=nodes)
