"""A GAT step, Linear included: attend(Additive) over a Graph beside PyG's GATConv, eager and compiled."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .. import Additive, Graph, attend
from ..attention.measure import peak_memory
from . import interleaved


class Layer(nn.Module):
    """out_i = Σ_j α_ij W x_j, α_ij ∝ exp(leaky(l·W x_i + s·W x_j))"""

    def __init__(self, width: int, heads: int, dim: int):
        super().__init__()
        self.weight = nn.Linear(width, heads * dim, bias=False)
        self.listener = nn.Parameter(torch.randn(heads, dim, 1) / dim**0.5)
        self.speaker = nn.Parameter(torch.randn(heads, dim, 1) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(heads * dim))
        self.heads = heads

    def forward(self, x, graph):
        z = self.weight(x).view(len(x), self.heads, -1).transpose(0, 1)  # (heads, nodes, dim)
        # l·(W x) = (Wᵀ l)·x: the scores of all nodes are two more thin products with x.
        weight = self.weight.weight.view(self.heads, -1, x.shape[1])
        listener, speaker = (
            F.linear(x, (end.mT @ weight).squeeze(1)) for end in (self.listener, self.speaker)
        )
        listener, speaker = (scores.T.unsqueeze(-1) for scores in (listener, speaker))  # (heads, nodes, 1)
        out = attend(listener, speaker, z, similarity=Additive(0.2), neighbors=graph)
        return out.transpose(0, 1).reshape(len(x), -1) + self.bias


def run(*, quick: bool, device: str):
    nodes, edges, heads, dim, width = (2_000, 40_000, 8, 8, 64) if quick else (20_000, 400_000, 8, 8, 64)
    torch.manual_seed(0)
    index = torch.randint(nodes, (2, edges), device=device)
    x = torch.randn(nodes, width, device=device)
    graph = Graph.from_edge_index(index, nodes=nodes)
    layer = Layer(width, heads, dim).to(device)
    calls = {"heedful": _step(layer, x, graph)}
    try:
        from torch_geometric.nn import GATConv
    except ImportError:
        GATConv = None
    if GATConv is not None:
        rival = GATConv(width, dim, heads, add_self_loops=False).to(device)
        with torch.no_grad():
            rival.lin.weight.copy_(layer.weight.weight)
            rival.att_dst.copy_(layer.listener.squeeze(-1))
            rival.att_src.copy_(layer.speaker.squeeze(-1))
            difference = (rival(x, index) - layer(x, graph)).abs().max().item()
        calls["PyG eager"] = _step(rival, x, index)
        calls["PyG compiled"] = _step(torch.compile(rival, dynamic=False), x, index)
    taken = interleaved(calls, rounds=3 if quick else 15)
    memory = {name: peak_memory(call) for name, call in calls.items()}
    rows = [
        {
            "what": name,
            "step ms": 1e3 * taken[name],
            "times heedful": taken[name] / taken["heedful"],
            "peak MiB": memory[name] / 2**20,
            "memory times heedful": memory[name] / memory["heedful"],
        }
        for name in calls
    ]
    if GATConv is None:
        return rows, "PyTorch Geometric is not installed; nothing to compare with.", None
    eager, compiled = taken["PyG eager"] / taken["heedful"], taken["PyG compiled"] / taken["heedful"]
    lighter = memory["PyG eager"] / memory["heedful"]
    verdict = (
        f"{eager:.1f}× PyG eager (goal 12), {compiled:.1f}× compiled (goal 5), "
        f"1/{lighter:.1f} of its memory (goal 1/15); largest difference {difference:.1e}"
    )
    return rows, verdict, eager >= 12 and compiled >= 5 and lighter >= 15


def _step(module, x, structure):
    x = x.clone().requires_grad_()
    parameters = [x, *module.parameters()]
    gradient = torch.ones_like(module(x, structure))

    def once():
        return torch.autograd.grad(module(x, structure), parameters, gradient)

    return once
