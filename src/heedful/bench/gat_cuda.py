"""A GAT layer on a GPU: heedful's GATConv beside PyG's, eager and compiled, and beside its bytes.

Nodes listen to random others; how often a node is heard is skewed (the square of a uniform number picks it),
so the transpose has hubs. The floor counts every row of the value table once an edge, every score and index
once, and nothing else, at the rate of a large copy.

Both sides are timed as they are called and, where a step is short, with it recorded as a CUDA graph (heedful
by `captured`, PyG by torch.compile's "reduce-overhead"). Ratios are of the faster of each side's ways.
"""

from __future__ import annotations

from statistics import median

import torch
from torch import Tensor

from .. import Graph
from ..attention.measure import peak_memory
from ..nn import GATConv
from ..training import captured

# Name: nodes, edges, heads, features a head, features of x; times as fast as PyG compiled and eager to reach.
PROBLEMS = {
    "169k nodes, 2.3M edges, 8×8": (169_000, 2_300_000, 8, 8, 128, 3, 18),
    "169k nodes, 2.3M edges, 4×64": (169_000, 2_300_000, 4, 64, 128, 2.5, 0),
    "2.45M nodes, 61.9M edges, 8×8": (2_450_000, 61_900_000, 8, 8, 100, 3, 20),
}
QUICK = {"20k nodes, 400k edges, 8×8": (20_000, 400_000, 8, 8, 64, 3, 18)}


def run(*, quick: bool, device: str):
    rows, reached, verdicts = [], [], []
    rate = _copy_rate()
    for name, (nodes, edges, heads, dim, width, compiled, eager) in (QUICK if quick else PROBLEMS).items():
        torch.manual_seed(0)
        index = skewed_edges(nodes, edges)
        x = torch.randn(nodes, width, device="cuda")
        found = _compare(index, x, heads, dim, quick, short=edges < 10_000_000)
        for row in found:
            item = 2 if "bfloat16" in row["what"] else 4
            row["floor, forward ms"] = 1e3 * edges * (heads * (dim + 1) * item + 4) / rate
            rows.append({"problem": name, **row})
        said, good = _judge(name, {row["what"]: row for row in found}, compiled, eager)
        verdicts.append(said)
        reached.append(good)
        del index, x, found
        torch.cuda.empty_cache()
    return rows, "; ".join(verdicts), None if None in reached else all(reached)


def skewed_edges(nodes: int, edges: int) -> Tensor:
    """(2, edges): speakers skewed, their numbers shuffled, and listeners at random."""
    uniform = torch.rand(edges, device="cuda", dtype=torch.float64)
    rank = (nodes * uniform.square()).long().clamp_(max=nodes - 1)
    speaker = torch.randperm(nodes, device="cuda")[rank]
    return torch.stack([speaker, torch.randint(nodes, (edges,), device="cuda")])


def _compare(index: Tensor, x: Tensor, heads: int, dim: int, quick: bool, short: bool) -> list[dict]:
    nodes, width = x.shape
    graph = Graph.from_edge_index(index, nodes=nodes)
    layer = GATConv(width, dim, heads, self_loops=False).cuda()
    low = GATConv(width, dim, heads, self_loops=False).to("cuda", torch.bfloat16)
    low.load_state_dict(layer.state_dict())
    calls = {"heedful": (layer, x, graph), "heedful, bfloat16": (low, x.bfloat16(), graph)}
    difference = {}
    try:
        from torch_geometric.nn import GATConv as Rival
    except ImportError:
        pass
    else:
        rival = Rival(width, dim, heads, add_self_loops=False).cuda()
        with torch.no_grad():
            rival.lin.weight.copy_(layer.weight.T)
            rival.att_dst.copy_(layer.listener)
            rival.att_src.copy_(layer.speaker)
            theirs, scale = rival(x, index), layer(x, graph).abs().max()
            for name, (module, features, _) in calls.items():
                difference[name] = ((module(features, graph) - theirs).abs().max() / scale).item()
            del theirs
        calls["PyG eager"] = (rival, x, index)
        calls["PyG compiled"] = (torch.compile(rival, dynamic=False), x, index)
        if short:
            calls["PyG compiled, CUDA graphs"] = (
                torch.compile(rival, dynamic=False, mode="reduce-overhead"), x, index,
            )  # fmt: skip
    rows, rounds = [], 5 if quick else 20
    for name, (module, features, structure) in calls.items():
        forward, step = _forward(module, features, structure), _step(module, features, structure)
        row = {
            "what": name,
            # (A forward pass alone would be compiled a second time.)
            "forward ms": None if "compiled" in name else milliseconds(forward, rounds),
            "step ms": milliseconds(step, rounds),
            "peak MiB": peak_memory(step, "cuda") / 2**20,
            "difference": difference.get(name),
        }
        if name.startswith("heedful"):
            row["recorded forward ms"] = milliseconds(captured(forward), rounds)
            row["recorded step ms"] = milliseconds(captured(step), rounds)
        rows.append(row)
        torch.cuda.empty_cache()
    ours = _best(rows[0])
    for row in rows:
        row["step, times heedful"] = _best(row) / ours
        row["peak, times heedful"] = row["peak MiB"] / rows[0]["peak MiB"]
    return rows


def _best(row: dict) -> float:
    return min(row["step ms"], row.get("recorded step ms", row["step ms"]))


def _judge(name: str, found: dict, compiled: float, eager: float):
    ours = found["heedful"]
    near = ours["recorded forward ms"] / ours["floor, forward ms"]
    low = _best(ours) / _best(found["heedful, bfloat16"])
    said = f"{name}: forward {near:.1f}× its floor (goal 2.5), bfloat16 {low:.2f}× (goal 1.5)"
    if "PyG eager" not in found:
        return f"{said}; PyTorch Geometric is not installed", None
    rivals = [row for what, row in found.items() if what.startswith("PyG compiled")]
    fast, faster = (
        min(row["step, times heedful"] for row in rivals),
        found["PyG eager"]["step, times heedful"],
    )
    # (A recording holds its memory from before the measurement on: it says 0.)
    light = min(row["peak, times heedful"] for row in rivals if row["peak MiB"] > 0)
    lighter = found["PyG eager"]["peak, times heedful"]
    said += (
        f", {fast:.1f}× PyG compiled (goal {compiled}), {faster:.1f}× eager"
        f"{f' (goal {eager})' if eager else ''}, 1/{light:.1f} and 1/{lighter:.1f} of their memory"
    )
    return said, near <= 2.5 and low >= 1.5 and fast >= compiled and faster >= eager


def _forward(module, x, structure):
    def once():
        with torch.no_grad():
            return module(x, structure)

    return once


def _step(module, x, structure):
    """Forward and backward, x an input that wants a gradient as inside a model."""
    x = x.clone().requires_grad_()
    inputs = [x, *module.parameters()]
    gradient = torch.randn_like(module(x, structure))

    def once():
        return torch.autograd.grad(module(x, structure), inputs, gradient)

    return once


def milliseconds(call, rounds: int = 20, warm: int = 3) -> float:
    """The median time between two events around a call; the CPU's part counts where it is the slower."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)


def _copy_rate() -> float:
    """Bytes a second of a large copy, read and written."""
    a = torch.empty(2**29, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / (milliseconds(lambda: b.copy_(a)) / 1e3)
