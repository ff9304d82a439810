"""Kernels by their features on the GPU, made in registers: what `factored` and `scan` run there.

Of (q·k + c)², of `EluKernel` and of `RandomFeatures` nothing is ever stored. Any other φ is torch's or the
user's to compute, so its features are, where they are few enough; what is done with them is the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...kernels import feature_maps, feature_operators, quadratic, sparse_operators
from ...kernels.feature_maps import Map, feature_attention, feature_step
from ...kernels.lengths import shortened
from ...kernels.quadratic import quadratic_attention
from ..cost import TRANSCENDENTAL, Cost
from ..similarity import EluKernel, FeatureMap, Polynomial, RandomFeatures, Similarity
from ..transforms import exporting
from .base import Call


def expands(problem, *, causal: bool) -> str:
    """Which kernels a problem will run here, "quadratic" or "features", or none; for the planner."""
    similarity = problem.similarity
    if problem.device != "cuda" or problem.transform == "functorch" or problem.dtype == "float64":
        return ""
    if causal and problem.queries != problem.keys:
        return ""
    narrow = max(problem.dim, problem.value_dim) <= quadratic.WIDEST and problem.dtype != "float16"
    if similarity.map == "square" and narrow and problem.position is None:
        return "quadratic"
    learned = problem.position is not None and problem.position.learned
    if learned or problem.value_dim > feature_maps.WIDEST or not _few(similarity, problem.dim):
        return ""
    return "features"


def _few(facts, dim: int) -> bool:
    """Whether features are made in registers, or few enough to be stored."""
    if facts.map == "exponential":
        return dim <= feature_maps.WIDEST
    return facts.features <= feature_maps.MOST_GIVEN


def quadratic_cost(problem) -> Cost:
    """Each tensor is read a few times, and only totals are kept."""
    features, width = problem.dim**2, problem.value_dim
    length = problem.rows * (problem.queries + problem.keys)
    return Cost(
        2 * length * features * (width + 1),
        3 * problem.tensor_bytes,
        8 * problem.rows * features * width + problem.tensor_bytes,
        24,
    )


def features_cost(problem, *, causal: bool) -> Cost:
    features, width = problem.similarity.features, problem.value_dim
    length = problem.rows * (problem.queries + problem.keys)
    each, stored, launches = 2 * features * (width + 1), 0, 6
    if problem.similarity.map == "exponential":
        each += features * (3 * problem.dim + TRANSCENDENTAL)
    elif problem.similarity.map != "elu":
        stored, launches = 4 * length * features, 20
    states = 4 * features * width * problem.rows
    if causal:
        each += feature_maps.SHORTEST_SPAN * (features + width)
        states *= -(-problem.queries // feature_maps.SHORTEST_SPAN)
    return Cost(
        length * each,
        2 * problem.tensor_bytes + 3 * stored + 3 * states,
        problem.tensor_bytes + stored + states,
        launches,
    )


def expanded(call: Call, again: Callable[[Call], Tensor], *, causal: bool) -> Tensor | None:
    """The result, or None where the kernels do not take the call; `again` computes it in torch."""
    query, key, value = call.query, call.key, call.value
    if exporting() or not feature_maps.suits(query, key, value, causal):
        return None  # an exported program must run where our operators are not known
    similarity, lead = call.similarity, query.shape[:-2]
    if key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(repeats, -3) for x in (key, value))
    squared = similarity.map == "square" and call.position is None and quadratic.suits(query, value)
    if squared and isinstance(similarity, Polynomial):
        return _quadratic(similarity.constant, query, key, value, causal).unflatten(0, lead)
    if not _few(similarity.facts(query.shape[-1]), query.shape[-1]):
        return None
    rates = _rates(call)
    if rates is not None and rates.requires_grad and torch.is_grad_enabled():
        return None  # the kernels have no gradient of slopes
    phi, query, key = _mapped(similarity, query, key)
    if not (feature_maps.within_reach(query) and feature_maps.within_reach(key)):
        return None
    compared = FeatureMap(_same, size=phi.features) if phi.kind == "given" else similarity

    def in_torch(q, k, v):
        q, k, v = (x.float().unflatten(0, lead) for x in (q, k, v))
        return again(Call(q, k, v, compared, call.neighbors, call.position)).flatten(0, -3).to(query.dtype)

    q, k, v = (x.flatten(0, -3) for x in (query, key, value.to(query.dtype)))
    if torch.compiler.is_compiling():
        training = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        out = feature_operators.feature_attention(q, k, v, *phi, rates, causal, training)[0]
    else:
        out = feature_attention(q, k, v, phi, causal=causal, again=in_torch, rates=rates)
    return out.unflatten(0, lead).to(call.query.dtype)


def expanded_step(
    call: Call, state: Tensor | None, factor: Tensor | None, prepared: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor] | None:
    """What one new token hears and the state after it, or None where the kernels do not take the call.

    Query and key may be prepared already; the state is to be multiplied by `factor` before it is added to.
    """
    query, key, value, similarity = call.query, call.key, call.value, call.similarity
    if call.queries != 1 or exporting() or not feature_maps.suits(query, key, value, causal=True):
        return None
    lead, rates = query.shape[:-2], _rates(call)
    if similarity.map == "square" and prepared is not None:
        query, key = prepared
        phi = Map("square", query.shape[-1] ** 2)
    else:
        phi, query, key = _mapped(similarity, query, key, prepared)
    read = (query, key, value, state, rates)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in read):
        return None
    keep = None if factor is None else factor.expand(*lead, 1, 1).reshape(-1)
    if rates is not None:
        fades = torch.exp(-rates)
        keep = fades if keep is None else fades * keep
    q, k, v = (x.flatten(0, -2) for x in (query, key, value))
    before = None if state is None else state.flatten(0, -3)
    if torch.compiler.is_compiling():
        out, after = feature_operators.feature_step(q, k, v, *phi, before, keep)
    else:
        out, after = feature_step(q, k, v, phi, before, keep)
    return out.unflatten(0, lead)[..., None, :], after.unflatten(0, lead)


def keeps_state(call: Call) -> bool:
    """Whether the kernels will take tokens that come after this call, if they may."""
    narrow = max(call.query.shape[-1], call.value.shape[-1]) <= feature_maps.WIDEST
    return sparse_operators.on_gpu(call.query.device) and narrow and not exporting()


def _same(x: Tensor) -> Tensor:
    return x


def _rates(call: Call) -> Tensor | None:
    """How fast weights fall with distance, for each batch entry and head: (B·H,)."""
    if call.position is None:
        return None
    found = call.position.rates(call.heads, call.query.new_empty(0, dtype=torch.float32))
    return found.expand(call.query.shape[:-2]).reshape(-1)


def _mapped(
    similarity: Similarity, query: Tensor, key: Tensor, prepared: tuple[Tensor, Tensor] | None = None
) -> tuple[Map, Tensor, Tensor]:
    """Which φ; and query and key, or the features of them."""
    if isinstance(similarity, EluKernel):
        return Map("elu", query.shape[-1]), query, key
    if isinstance(similarity, RandomFeatures):
        directions, taken, half = similarity.table(query.shape[-1], query.device)
        return Map("exponential", similarity.size, directions, taken, half), query, key
    query, key = prepared or similarity.prepare(query.float(), key.float())
    query, key = similarity.query_features(query), similarity.key_features(key)
    return Map("given", query.shape[-1]), query, key


def _quadratic(constant: float, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    query, key, constants = shortened(query, key, constant, 2)
    q, k, v, c = (*(x.flatten(0, -3) for x in (query, key, value)), constants.flatten(0, -2))
    if torch.compiler.is_compiling():
        return feature_operators.quadratic_attention(q, k, v, c, causal)[0].to(q.dtype)
    return quadratic_attention(q, k, v, c, causal)
