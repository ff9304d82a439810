"""The edges of a GAT layer against cuDNN's graph attention (`cudnn.gnn.mha_gat`, from cuDNN 9.28 on).

Both get the features after W, score vectors and the edges grouped by listener, and are timed forward and
backward. Which half of its score vector cuDNN gives to the speakers is found by asking it.
"""

from __future__ import annotations

import torch

from .. import Additive, Graph, attend
from ..attention.measure import peak_memory
from .gat_cuda import PROBLEMS, QUICK, milliseconds, skewed_edges

try:
    from cudnn.gnn import CscGraph, mha_gat
except Exception as error:  # not installed, or an older library beneath it
    MISSING = f"{type(error).__name__}: {error}"
else:
    MISSING = ""


def run(*, quick: bool, device: str):
    if MISSING:
        return [], f"cuDNN's graph attention cannot be loaded here ({MISSING}).", None
    rows, ratios = [], []
    for name, (nodes, edges, heads, dim, *_) in (QUICK if quick else PROBLEMS).items():
        torch.manual_seed(0)
        graph = Graph.from_edge_index(skewed_edges(nodes, edges), nodes=nodes)
        theirs = CscGraph(graph.rowptr.int(), graph.col.int(), num_src_nodes=nodes)
        z = torch.randn(nodes, heads * dim, device="cuda", requires_grad=True)
        speaker, listener = torch.randn(2, heads, dim, device="cuda").unbind()
        gradient = torch.randn_like(z)

        def ours(z=z, speaker=speaker, listener=listener, graph=graph, heads=heads):
            v = z.unflatten(1, (heads, -1)).transpose(0, 1)
            q, k = ((v * vector[:, None]).sum(-1, keepdim=True) for vector in (listener, speaker))
            out = attend(q, k, v, similarity=Additive(0.2), neighbors=graph)
            return out.transpose(0, 1).flatten(1)

        def cudnn(order, z=z, theirs=theirs, heads=heads):
            return mha_gat(theirs, z, torch.cat([part.flatten() for part in order]), num_heads=heads)

        orders = (speaker, listener), (listener, speaker)
        with torch.no_grad():
            expected = ours()
            apart = [((cudnn(order) - expected).norm() / expected.norm()).item() for order in orders]
        order = orders[apart.index(min(apart))]
        calls = {"heedful": ours, "cuDNN": lambda order=order, cudnn=cudnn: cudnn(order)}
        for what, call in calls.items():

            def step(call=call, z=z, gradient=gradient):
                return torch.autograd.grad(call(), z, gradient)

            rows.append(
                {"problem": name, "what": what, "step ms": milliseconds(step),
                 "peak MiB": peak_memory(step, "cuda") / 2**20, "difference": min(apart)}
            )  # fmt: skip
        ratios.append(rows[-1]["step ms"] / rows[-2]["step ms"])
    said = ", ".join(f"{ratio:.2f}×" for ratio in ratios)
    return rows, f"{said} cuDNN's graph attention, forward and backward", None
