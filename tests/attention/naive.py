"""The operator by its definition, in Python loops over float64 numbers.

    s_ij = w_ij sim(q_i, k_j + key_ij) exp(p_{i−j} + bias_ij)
    out_i = Σ_{j ∈ N(i)} s_ij (v_j + value_ij)  /  Σ_{j ∈ N(i)} s_ij

It reads the parameters of similarities, neighbours and positions and evaluates them itself, pair by pair, so
a mistake in the library cannot hide in it. All else is judged by it, through the strategy "reference".
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from heedful import attention
from heedful.attention import neighbors as patterns
from heedful.attention import position as positions
from heedful.graphs import Graph


def attend(query, key, value, *, similarity, neighbors, position=None) -> np.ndarray:
    if query.dim() == 2:
        call = (query[None], key[None], value[None])
        return attend(*call, similarity=similarity, neighbors=neighbors, position=position)[0]
    lead = np.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    q, k, v = (np.broadcast_to(numbers(x), (*lead, *x.shape[-3:])) for x in (query, key, value))
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    out = np.zeros((*lead, heads, queries, v.shape[-1]))
    for place in np.ndindex(*lead, heads):
        shared = (*place[:-1], place[-1] // (heads // k.shape[-3]))
        for row in range(queries):
            i = row + keys - queries
            terms = []
            for j, edge in heard(neighbors, place, row, queries, keys):
                x, y = q[place][row], k[shared][j] + edge.get("key", 0.0)
                if isinstance(position, positions.Rotary):
                    x, y = turned(position, x, i), turned(position, k[shared][j], j) + edge.get("key", 0.0)
                log_factor = edge.get("bias", 0.0) + distance(position, i - j, place[-1], heads)
                terms.append(
                    (x, y, log_factor, edge.get("weight", 1.0), v[shared][j] + edge.get("value", 0.0))
                )
            weights = weigh(similarity, terms, place[-1])
            total = sum(weights)
            if total != 0:
                out[place][row] = sum(w * term[-1] for w, term in zip(weights, terms, strict=True)) / total
    return out


def numbers(x) -> np.ndarray:
    return x.detach().double().cpu().numpy()


# Who is heard


def heard(neighbors, place, row, queries, keys):
    """(speaker, what the edge carries) of everyone the listener heeds; an edge list counts each edge."""
    parts = conjuncts(neighbors)
    graphs = [part for part in parts if isinstance(part, Graph)]
    if not graphs:
        return [(j, {}) for j in range(keys) if heeds(neighbors, place, row, j, queries, keys)]
    graph = next((graph for graph in graphs if graph.attributes), graphs[0])
    others = [part for part in parts if part is not graph]
    edges = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    return [
        (j, {name: attribute(name, tensor, place, e) for name, tensor in graph.attributes.items()})
        for e, (j, target) in enumerate(edges)
        if target == row and all(heeds(other, place, row, j, queries, keys) for other in others)
    ]


def conjuncts(neighbors) -> list:
    if isinstance(neighbors, patterns.All):
        return conjuncts(neighbors.left) + conjuncts(neighbors.right)
    return [neighbors.edges if isinstance(neighbors, patterns.Edges) else neighbors]


def attribute(name, tensor, place, e):
    lead = tensor.shape[: -1 if name in ("weight", "bias") else -2]
    return numbers(tensor)[(*broadcast(place, lead), e)]


def broadcast(place, lead) -> tuple[int, ...]:
    """Where in leading dimensions, some of them missing or 1, the entry for (batch …, head) stands."""
    return tuple(
        n if extent > 1 else 0 for n, extent in zip(place[len(place) - len(lead) :], lead, strict=True)
    )


def heeds(neighbors, place, row, j, queries, keys) -> bool:
    i = row + keys - queries
    match neighbors:
        case attention.Everyone():
            return True
        case attention.Causal():
            return j <= i
        case attention.Window():
            return abs(i - j) <= neighbors.signature[1]
        case attention.Segments():
            run = [n for n, length in enumerate(neighbors.lengths) for _ in range(length)]
            return run[i] == run[j]
        case attention.Global():
            return i in neighbors.indices or j in neighbors.indices
        case attention.Mask():
            allowed = neighbors.allowed
            place = broadcast((*place, row, j)[len(place) + 2 - allowed.dim() :], allowed.shape)
            return bool(allowed[place])
        case Graph():
            return (j, row) in set(zip(neighbors.source.tolist(), neighbors.target.tolist(), strict=True))
        case patterns.Edges():
            return heeds(neighbors.edges, place, row, j, queries, keys)
        case patterns.All():
            return all(
                heeds(side, place, row, j, queries, keys) for side in (neighbors.left, neighbors.right)
            )
        case patterns.Any():
            return any(
                heeds(side, place, row, j, queries, keys) for side in (neighbors.left, neighbors.right)
            )
    raise NotImplementedError(neighbors)


# How alike


def weigh(similarity, terms, head) -> list[float]:
    if isinstance(similarity, attention.Argmax):
        scores = [float(np.dot(x, y)) if factor > -math.inf else -math.inf for x, y, factor, _, _ in terms]
        best = max(scores, default=-math.inf)
        return [
            weight * math.exp(factor) if score == best and score > -math.inf else 0.0
            for score, (_, _, factor, weight, _) in zip(scores, terms, strict=True)
        ]
    return [weight * alike(similarity, x, y, head) * math.exp(factor) for x, y, factor, weight, _ in terms]


def alike(similarity, x, y, head) -> float:
    match similarity:
        case attention.Softmax():
            scale = 1 / math.sqrt(len(x)) if similarity.scale is None else one_of(similarity.scale, head)
            return math.exp(scale * np.dot(x, y))
        case attention.Polynomial():
            return (np.dot(x, y) + similarity.constant) ** similarity.degree
        case attention.EluKernel():
            return np.dot(*(np.where(z > 0, z + 1, np.exp(np.minimum(z, 0))) for z in (x, y)))
        case attention.RandomFeatures():
            root = math.sqrt(1 / math.sqrt(len(x)) if similarity.scale is None else similarity.scale)
            directions = attention.similarity.random_features._random_directions(
                similarity.size, len(x), similarity.seed, similarity.orthogonal
            ).numpy()
            return np.dot(*(np.exp(directions @ (root * z) - root**2 * np.dot(z, z) / 2) for z in (x, y)))
        case attention.FeatureMap():
            return np.dot(np.exp(x), np.exp(y))  # the one feature map that cases.py uses
        case attention.Additive():
            hidden = np.where(x + y > 0, x + y, similarity.slope * (x + y))
            weight = np.ones(1) if similarity.weight is None else np.atleast_2d(numbers(similarity.weight))
            return math.exp(np.dot(weight[head] if len(weight) > 1 else weight.reshape(-1), hidden))
        case attention.Uniform():
            return 1.0
        case attention.ScoreFunction():
            return math.exp(-np.dot(x - y, x - y))  # the one function that cases.py uses
    raise NotImplementedError(similarity)


def one_of(parameter, head) -> float:
    """A number, a scalar tensor, or the entry of this head."""
    entries = np.atleast_1d(numbers(parameter)) if hasattr(parameter, "detach") else np.array([parameter])
    return float(entries[head] if len(entries) > 1 else entries[0])


# What distance does


def distance(position, offset, head, heads) -> float:
    match position:
        case None | attention.Rotary():
            return 0.0
        case attention.Relative():
            reach = position.entries.shape[-1] // 2
            if position.clamp:
                offset = max(-reach, min(reach, offset))
            return table_entry(position, reach + offset, head)
        case attention.Alibi():
            slope = (
                2 ** (-8 * (head + 1) / heads) if position.slopes is None else one_of(position.slopes, head)
            )
            return -slope * abs(offset)
        case attention.T5Buckets():
            return table_entry(position, bucket(position, offset), head)
    raise NotImplementedError(position)


def table_entry(position, entry, head) -> float:
    rows = np.atleast_2d(numbers(position.entries))
    return float(rows[head if len(rows) > 1 else 0, entry])


def bucket(position, offset) -> int:
    """T5's bucket of i − j, logarithms compared in fractions: bucket t begins at near·(far/near)^(t/rest)."""
    buckets, first = position.entries.shape[-1], 0
    if position.bidirectional:
        buckets //= 2
        first = buckets if offset < 0 else 0
    away = abs(offset) if position.bidirectional else max(offset, 0)
    near = buckets // 2
    if away < near:
        return first + away
    ratio, whole, rest = Fraction(away, near), Fraction(position.max_distance, near), buckets - near
    step = max(t for t in range(rest) if ratio**rest >= whole**t)
    return first + near + step


def turned(rotary, x, at) -> np.ndarray:
    """Each pair of coordinates as a complex number, times e^{i·at·θ}."""
    dims = rotary.dims or len(x)
    pairs = range(dims // 2)
    first = [2 * m if rotary.interleaved else m for m in pairs]
    second = [2 * m + 1 if rotary.interleaved else m + dims // 2 for m in pairs]
    out = x.copy()
    for m in pairs:
        z = complex(x[first[m]], x[second[m]]) * np.exp(1j * at * rotary.base ** (-2 * m / dims))
        out[first[m]], out[second[m]] = z.real, z.imag
    return out
