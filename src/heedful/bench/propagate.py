"""A GCN step, forward and backward: Graph.propagate beside PyG's GCNConv on edges, and torch.sparse CSR."""

from __future__ import annotations

import torch
from torch import nn

from .. import Graph
from . import interleaved


def run(*, quick: bool, device: str):
    nodes, edges, width = (2_000, 40_000, 64) if quick else (20_000, 400_000, 64)
    torch.manual_seed(0)
    index = torch.randint(nodes, (2, edges), device=device)
    weight = torch.rand(edges, device=device)
    x = torch.randn(nodes, width, device=device, requires_grad=True)
    graph = Graph.from_edge_index(index, nodes=nodes, weight=weight)
    linear = nn.Linear(width, width, bias=False).to(device)
    csr = graph.to_torch_sparse()
    gradient = torch.ones(nodes, width, device=device)
    parameters = [x, linear.weight]

    def step(function):
        return lambda: torch.autograd.grad(function(), parameters, gradient)

    calls = {
        "heedful": step(lambda: graph.propagate(linear(x))),
        "torch.sparse CSR": step(lambda: torch.sparse.mm(csr, linear(x))),
    }
    detached = linear(x).detach()
    alone = {
        "heedful, product alone": lambda: graph.propagate(detached),
        "torch.sparse CSR, product alone": lambda: torch.sparse.mm(csr, detached),
    }
    try:
        from torch_geometric.nn import GCNConv
    except ImportError:
        GCNConv = None
    if GCNConv is not None:
        rival = GCNConv(width, width, normalize=False, bias=False).to(device)
        with torch.no_grad():
            rival.lin.weight.copy_(linear.weight)
            difference = (rival(x, index, weight) - graph.propagate(linear(x))).abs().max().item()
        parameters_rival = [x, rival.lin.weight]
        calls["PyG GCNConv"] = lambda: torch.autograd.grad(
            rival(x, index, weight), parameters_rival, gradient
        )
    rounds = 5 if quick else 21
    taken = interleaved(calls, rounds=rounds)
    alone_taken = interleaved(alone, rounds=rounds)
    rows = [
        {"what": name, "ms": 1e3 * seconds, "times heedful": seconds / taken["heedful"]}
        for name, seconds in taken.items()
    ]
    base = alone_taken["heedful, product alone"]
    rows += [
        {"what": name, "ms": 1e3 * seconds, "times heedful": seconds / base}
        for name, seconds in alone_taken.items()
    ]
    sparse = taken["torch.sparse CSR"] / taken["heedful"]
    sparse_alone = alone_taken["torch.sparse CSR, product alone"] / base
    if GCNConv is None:
        return rows, f"{sparse:.2f}× torch.sparse; PyTorch Geometric is not installed.", None
    pyg = taken["PyG GCNConv"] / taken["heedful"]
    verdict = (
        f"{pyg:.1f}× PyG's GCNConv (goal 10), {sparse:.2f}× torch.sparse for a step and "
        f"{sparse_alone:.2f}× for the product alone (goal 1); largest difference {difference:.1e}"
    )
    return rows, verdict, pyg >= 10 and sparse >= 1 and sparse_alone >= 1
