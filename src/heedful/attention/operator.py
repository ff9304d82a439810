"""attend and explain: check the call, plan it, run it.

out_i = Σ_{j ∈ N(i)} sim(q_i, k_j; i−j) · v_j  /  Σ_{j ∈ N(i)} sim(q_i, k_j; i−j)
"""

from __future__ import annotations

from operator import index

import torch
from torch import Tensor

from ..graphs import Graph
from ..kernels.compiling import constant_to_compiler
from .check import check_call, check_dropout, check_exact, layout
from .neighbors import Edges, Everyone, Neighbors, as_neighbors
from .plan import _FORGET, Plan, make_plan, with_measurements
from .position import Position
from .problem import NeighborFacts, Problem, bucket
from .similarity import Similarity, Softmax
from .strategies import STRATEGIES, Call, Strategy
from .transforms import autocast, exporting, fixed, functorch_active, lowered, parts_of

_SOFTMAX, _EVERYONE = Softmax(), Everyone()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    similarity: Similarity = _SOFTMAX,
    neighbors: Neighbors | Graph = _EVERYONE,
    position: Position | None = None,
    dropout: float = 0.0,
    strategy: str | Strategy = "auto",
    exact: bool = True,
) -> Tensor:
    r"""out_i = Σ_{j∈N(i)} sim(q_i, k_j; i−j) v_j / Σ_{j∈N(i)} sim(q_i, k_j; i−j)

    Args:
        query: (..., heads, queries, dim), or (queries, dim).
        key: (..., key heads, keys, dim). Fewer key heads than heads are shared among them.
        value: (..., key heads, keys, any width).
        similarity: how alike query and key are: `Softmax`, `Argmax`, `Polynomial`, `Additive`, `Uniform` …
        neighbors: who listens to whom: `Everyone`, `Causal`, `Window` …, combined with & and |, or a `Graph`.
        position: what distance does to a score: `Relative`, `Alibi`, `T5Buckets`, `Rotary`.
        dropout: share of weights zeroed at random (the rest scaled up); for training.
        strategy: "auto" plans; a name forces one; a strategy object forces it with its options.
        exact: False admits approximations (low rank, projections, random features).

    Returns:
        (..., heads, queries, value width). A listener without neighbours gets 0.

    With unequal lengths the ends of queries and keys align. The result does not depend on the strategy, but
    for rounding; `explain` with the same arguments tells which one runs and why.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 2, 8, 100, 16)
    >>> expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    >>> torch.allclose(heedful.attend(q, k, v), expected, atol=1e-6)
    True
    """
    if autocast(query):
        with torch.autocast(query.device.type, enabled=False):
            return attend(
                *map(lowered, (query, key, value)),
                similarity=similarity,
                neighbors=neighbors,
                position=position,
                dropout=dropout,
                strategy=strategy,
                exact=exact,
            )
    if torch.compiler.is_compiling():
        return _attend_compiled(query, key, value, similarity, neighbors, position, dropout, strategy, exact)
    if isinstance(neighbors, Graph):
        neighbors = as_neighbors(neighbors)
    seen: tuple | None
    try:
        seen = (
            query.shape,
            key.shape,
            value.shape,
            query.dtype,
            key.dtype,
            value.dtype,
            query.device,
            key.device,
            value.device,
            similarity.signature,
            neighbors.shape_key,
            None if position is None else position.signature,
            dropout,
            torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad),
            functorch_active(),
            strategy,
            exact,
        )
        chosen = _CHOSEN.get(seen)
    except (AttributeError, TypeError):  # something is not what it should be; checking says what
        seen = chosen = None
    if chosen is None:
        neighbors = as_neighbors(neighbors)
        problem = _problem(query, key, value, similarity, neighbors, position, dropout, exact)
        if problem is None or problem.device == "meta":  # nobody, or nobody's numbers
            return _nobody(query, key, value, similarity, position)
        name = make_plan(problem, strategy).strategy
        chosen = (strategy if isinstance(strategy, Strategy) else STRATEGIES[name], problem.neighbors)
        if len(_CHOSEN) > 8192:
            _CHOSEN.clear()
        # How far edges reach is not in the key, and is checked.
        if seen is not None and (position is None or not problem.neighbors.graph):
            _CHOSEN[seen] = chosen
    elif position is not None and chosen[1].graph:
        # Graphs of one size may differ in how far their edges reach.
        heads = query.shape[-3] if query.dim() > 2 else 1
        position.check(neighbors.span(query.shape[-2], key.shape[-2]), heads, query.shape[-1])
    return _run(chosen[0], query, key, value, similarity, neighbors, position, dropout, chosen[1])


_CHOSEN: dict[tuple, tuple[Strategy, NeighborFacts]] = {}
_FORGET.append(_CHOSEN.clear)


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    similarity: Similarity = _SOFTMAX,
    neighbors: Neighbors | Graph = _EVERYONE,
    position: Position | None = None,
    dropout: float = 0.0,
    strategy: str | Strategy = "auto",
    exact: bool = True,
    analyze: bool = False,
    device: str | None = None,
) -> Plan:
    """The plan `attend` would follow: the chosen strategy, every other with its cost or the reason why not.

    Takes what `attend` takes. Tensors may be on the meta device: only their shapes matter, and `device` says
    where they would be. `analyze=True` also runs every strategy that can and adds its time and peak memory.

    >>> import torch, heedful
    >>> q = torch.empty(1, 8, 65536, 16, device="meta")
    >>> heedful.explain(q, q, q, similarity=heedful.Polynomial(degree=2)).strategy
    'factored'
    """
    neighbors = as_neighbors(neighbors)
    problem = _problem(query, key, value, similarity, neighbors, position, dropout, exact)
    if problem is None:
        raise ValueError(
            "explain(): there are no queries, keys or batch entries, so there is nothing to plan."
        )
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"explain(): device={device!r}; it takes 'cpu' or 'cuda'.")
    if device is not None or problem.device == "meta":
        problem = problem.replace(device=device or "cpu")
    plan = make_plan(problem, strategy)
    if not analyze:
        return plan
    from .measure import measure_candidates

    def run(way: Strategy, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _run(way, q, k, v, similarity, neighbors, position, dropout)

    return with_measurements(plan, measure_candidates(plan, strategy, query, key, value, run))


def _problem(
    query, key, value, similarity, neighbors, position, dropout, exact, transform=""
) -> Problem | None:
    """Check a call and state its facts; None when there is nobody to speak or to listen."""
    check_call(query, key, value, similarity, neighbors, position)
    check_dropout(dropout)
    check_exact(exact)
    lead, heads, key_heads = layout(query, key, value)
    size = index if transform == "compile" else int
    queries, keys = query.shape[-2], key.shape[-2]
    if transform == "compile":
        # Plans for compiled code are made for the next power of two: a new length seldom means a new trace.
        queries, keys = (bucket(queries),) * 2 if queries == keys else (bucket(queries), bucket(keys))
    batch = 1
    for extent in lead:
        batch *= extent
    if transform == "compile":  # and so is one for another batch
        batch = bucket(batch) if batch != 0 else 0
    if batch == 0 or queries == 0 or keys == 0:
        return None
    facts = neighbors.facts(queries, keys)
    if position is not None and not torch.compiler.is_compiling():
        position.check(neighbors.span(queries, keys), heads, query.shape[-1])
    learned = position is not None and position.facts() is not None and position.facts().learned
    wants = [query.requires_grad, key.requires_grad, value.requires_grad, learned]
    wants += [isinstance(part, Tensor) and part.requires_grad for part in parts_of(similarity)]
    if facts.attributes:
        wants += [True]
    return Problem(
        batch=size(batch),
        heads=size(heads),
        key_heads=size(key_heads),
        queries=size(queries),
        keys=size(keys),
        dim=size(query.shape[-1]),
        value_dim=size(value.shape[-1]),
        dtype=str(query.dtype).removeprefix("torch."),
        device=query.device.type,
        similarity=similarity.facts(size(query.shape[-1])),
        neighbors=facts,
        position=None if position is None else position.facts(),
        dropout=dropout > 0,
        gradient=torch.is_grad_enabled() and any(wants),
        exact=exact,
        transform=transform or ("functorch" if functorch_active() else ""),
    )


def _run(way: Strategy, query, key, value, similarity, neighbors, position, dropout, facts=None) -> Tensor:
    single = query.dim() == 2
    if single:
        query, key, value = query[None], key[None], value[None]
    elif query.shape[:-3] != key.shape[:-3] or query.shape[:-3] != value.shape[:-3]:
        lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
        query, key, value = (x.expand(*lead, *x.shape[-3:]) for x in (query, key, value))
    if position is not None and position.rotates:
        query, key = position.apply(query, key)
        position = None
    seed = None
    if dropout:
        seed = torch.randint(torch.iinfo(torch.int64).max, (1,), device=query.device)
    out = way(Call(query, key, value, similarity, neighbors, position, dropout, seed, facts))
    return out[0] if single else out


def _nobody(query: Tensor, key: Tensor, value: Tensor, *others) -> Tensor:
    """No speaker, no listener, an empty batch or meta tensors: zeros, through which gradients still pass,
    also to what the others hold, such as a table.
    """
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    shape = (*lead, *query.shape[-3:-1], value.shape[-1])
    held = (x for other in others if other is not None for x in parts_of(other))
    learned = (x.to(query) for x in held if isinstance(x, Tensor) and x.requires_grad)
    return torch.cat([x.flatten()[:0] for x in (query, key, value, *learned)]).sum().expand(shape)


def _attend_compiled(query, key, value, similarity, neighbors, position, dropout, strategy, exact) -> Tensor:
    neighbors, dropout = as_neighbors(neighbors), fixed(dropout)
    if isinstance(strategy, Strategy):
        way = strategy
    elif strategy == "auto" and exporting() and _symbolic(query, key):
        # A program for any length cannot plan: that would fix it to the lengths one plan is good for.
        dense = not isinstance(neighbors, Edges)
        way = STRATEGIES["fused" if similarity.kind == "dot" and dense else "reference"]
    else:
        problem = _problem(
            query, key, value, similarity, neighbors, position, dropout, exact, transform="compile"
        )
        if problem is None:
            return _nobody(query, key, value, similarity, position)
        way = STRATEGIES[_chosen_name(strategy, *[fixed(fact) for fact in problem.flat()])]
    return _run(way, query, key, value, similarity, neighbors, position, dropout)


def _symbolic(*tensors: Tensor) -> bool:
    return any(isinstance(extent, torch.SymInt) for tensor in tensors for extent in tensor.shape)


@constant_to_compiler
def _chosen_name(strategy: str, *flat) -> str:
    return make_plan(Problem.from_flat(flat), strategy).strategy
