"""The drop-ins beside PyG's own layers: forward and backward, as a training loop would call them."""

from __future__ import annotations

import torch

from . import interleaved

# Name, what it is made with after in_channels, at the sizes below: 64 outputs each.
LAYERS = {
    "GATConv": (8, {"heads": 8}),
    "GATv2Conv": (8, {"heads": 8}),
    "GCNConv": (64, {}),
    "SAGEConv": (64, {}),
    "TransformerConv": (8, {"heads": 8}),
}
# Nodes, edges, features, whether x wants a gradient (a layer inside a model) or not (its first layer).
SIZES = {
    "large": (20_000, 400_000, 64, True),
    "Cora, inner": (2_708, 10_556, 64, True),
    "Cora, first": (2_708, 10_556, 1_433, False),
}


def run(*, quick: bool, device: str):
    try:
        import torch_geometric.nn as rival
    except ImportError:
        return [], "PyTorch Geometric is not installed; nothing to compare with.", None
    from ..interop import pyg

    torch.manual_seed(0)
    rows, reached = [], True
    for size, (nodes, edges, width, inside) in SIZES.items():
        if quick:
            nodes, edges = min(nodes, 2_000), min(edges, 10_000)
        x = torch.randn(nodes, width, device=device, requires_grad=inside)
        index = torch.randint(nodes, (2, edges), device=device)
        for name, (channels, options) in LAYERS.items():
            theirs = getattr(rival, name)(width, channels, **options).to(device)
            ours = getattr(pyg, name)(width, channels, **options).to(device)
            ours.load_state_dict(theirs.state_dict())
            with torch.no_grad():
                difference = (ours(x, index) - theirs(x, index)).abs().max().item()
            calls = {
                "PyG": _step(theirs, x, lambda index=index: index),
                "heedful": _step(ours, x, lambda index=index: index),
                "heedful, new graph": _step(ours, x, index.clone),
            }
            taken = interleaved(calls, rounds=3 if quick else 7 if size == "large" else 25)
            rows.append(
                {
                    "what": name,
                    "size": size,
                    "nodes": nodes,
                    "edges": edges,
                    "PyG ms": 1e3 * taken["PyG"],
                    "heedful ms": 1e3 * taken["heedful"],
                    "times": taken["PyG"] / taken["heedful"],
                    "new graph each step ms": 1e3 * taken["heedful, new graph"],
                    "new graph times": taken["PyG"] / taken["heedful, new graph"],
                    "largest difference": difference,
                }
            )
            reached = reached and rows[-1]["times"] > 1
    verdict = "; ".join(
        f"{size}: " + ", ".join(f"{row['what']} {row['times']:.1f}×" for row in rows if row["size"] == size)
        for size in SIZES
    )
    return rows, f"{verdict} PyG eager (goal: faster)", reached


def _step(layer, x, edges):
    """One forward and backward pass over the edges that `edges()` gives."""
    wanted = [*([x] if x.requires_grad else []), *layer.parameters()]
    gradient = torch.ones_like(layer(x, edges()))

    def once():
        return torch.autograd.grad(layer(x, edges()), wanted, gradient)

    return once
