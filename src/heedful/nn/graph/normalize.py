"""D̂^−½ Â D̂^−½, worked out once for each graph and never stale."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch

from ...attention.transforms import forward_mode_active, functorch_active
from ...graphs import Graph
from ...graphs.structure import lasting

_KEPT: WeakKeyDictionary[Graph, dict] = WeakKeyDictionary()


def normalized(graph: Graph, kind: str, loops: float | None, dtype: torch.dtype) -> Graph:
    """The graph, with loops of that weight unless None, its weights divided by degrees as `kind` says.

    The answer is kept as long as the graph lives. A graph does not change, but the tensor of its weights can
    be written to (its version tells), and weights that are learned are divided anew in every call.
    """
    weight, wide = graph.weight, torch.promote_types(dtype, torch.float32)

    def find() -> Graph:
        ones = torch.ones(graph.edges, dtype=wide, device=graph.device)
        found = graph.with_edges(weight=ones if weight is None else weight.to(wide))
        return (found if loops is None else found.with_self_loops(weight=loops)).normalized(kind)

    if torch.compiler.is_compiling() or forward_mode_active():
        return find()
    if weight is not None:
        traced = torch._C._functorch.is_functorch_wrapped_tensor(weight)
        if traced or weight.requires_grad or weight.is_inference():
            return find()
    kept, version = _KEPT.setdefault(graph, {}), None if weight is None else weight._version
    if functorch_active():  # vmap over what the graph does not depend on: what is known may be used
        known = kept.get((kind, loops, wide), (-1,))
        return known[1] if known[0] == version else find()
    if kept.get((kind, loops, wide), (-1,))[0] != version:
        with lasting():
            kept[kind, loops, wide] = version, find()
    return kept[kind, loops, wide][1]
