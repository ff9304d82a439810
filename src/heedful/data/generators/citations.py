"""A citation graph with words: degree-corrected blocks of papers, each with a main and a second topic."""

from __future__ import annotations

import numpy as np
import torch

from ...graphs import Graph
from ..kinds import GraphData


def citations(
    *,
    nodes: int = 2708,
    classes: int = 7,
    words: int = 1433,
    degree: float = 3.9,
    homophily: float = 0.81,
    words_each: float = 18.2,
    topic: float = 0.45,
    per_class: int = 20,
    seed: int = 0,
) -> GraphData:
    """P(i cites j) ∝ θ_i θ_j [b(i) = c(j)],   P(word of i) = topic · p_{b(i)} + (1 − topic) · p.

    θ has a heavy tail, so few papers are cited by many. The class of a paper is its main topic c(i); what it
    cites and says, b(i), is of that topic or of a second one, in a proportion that differs from paper to
    paper with mean `homophily`. So a paper's few words say little about its class, its neighbours' say more,
    and some papers are hard whatever one asks. Every paper cites at least one. The defaults are Cora's sizes,
    mean degree, homophily and density of words, and much its difficulty.

    `per_class` nodes of each class are for training, then 500 for validation and 1,000 for test (of a small
    graph, a fifth and two fifths).

    >>> citations(nodes=400, words=200)
    GraphData(citations: 400 nodes, 1560 edges, 200 features, 7 classes; train 140, val 80, test 160)
    """
    _check(locals())
    draw = np.random.RandomState(seed)
    shares = (np.arange(classes) + 2.0) ** -0.6  # the largest class is a few times the smallest
    bounds = np.round(nodes * np.cumsum(shares) / shares.sum())
    labels = draw.permutation(np.searchsorted(bounds, np.arange(nodes), side="right"))
    second = (labels + draw.randint(1, classes, nodes)) % classes
    loyalty = draw.beta(max(homophily, 1e-9), max(1 - homophily, 1e-9), nodes)  # mostly near 1, or near 0
    ends = _edges(draw, labels, second, loyalty, max(nodes, round(nodes * degree / 2)))
    features = _words(draw, labels, second, loyalty, words, words_each, topic)
    order = draw.permutation(nodes)
    train = np.concatenate([order[labels[order] == label][:per_class] for label in range(classes)])
    rest = order[~np.isin(order, train)]
    val, test = min(500, nodes // 5), min(1000, 2 * nodes // 5)
    return GraphData(
        "citations",
        Graph.from_edges(*ends, nodes=nodes).undirected().coalesce(),
        torch.from_numpy(features),
        torch.from_numpy(labels),
        train=torch.from_numpy(np.sort(train)),
        val=torch.from_numpy(np.sort(rest[:val])),
        test=torch.from_numpy(np.sort(rest[val : val + test])),
        classes=tuple(f"topic {number}" for number in range(classes)),
    )


def _edges(draw, labels, second, loyalty, wanted: int) -> np.ndarray:
    """(2, wanted) different pairs i < j: one for every paper, then by weight until there are enough."""
    # The tail of Cora's degrees, cut where the best connected would have more than its 168 citations.
    weight = np.minimum(draw.pareto(1.5, len(labels)) + 1, len(labels) / 16)
    members = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    ladders = [np.cumsum(weight[pool]) / weight[pool].sum() for pool in members]
    everyone = np.cumsum(weight) / weight.sum()
    citing = np.arange(len(labels))
    found = np.empty((2, 0), int)
    while found.shape[1] < wanted:
        topics = np.where(draw.random_sample(len(citing)) < loyalty[citing], labels[citing], second[citing])
        cited = np.empty_like(citing)
        for label, (pool, ladder) in enumerate(zip(members, ladders, strict=True)):
            mine = topics == label
            at = np.searchsorted(ladder, draw.random_sample(mine.sum()))
            cited[mine] = pool[np.where(pool[at] == citing[mine], at - 1, at)]  # nobody cites themselves
        pairs = np.sort([citing, cited], axis=0)
        found = _different(np.concatenate([found, pairs[:, citing != cited]], axis=1))[:, :wanted]
        citing = np.searchsorted(everyone, draw.random_sample(wanted))
    return found


def _different(pairs: np.ndarray) -> np.ndarray:
    """Each column once, where it first was."""
    first = np.unique(pairs, axis=1, return_index=True)[1]
    return pairs[:, np.sort(first)]


def _words(draw, labels, second, loyalty, words: int, each: float, topic: float) -> np.ndarray:
    """Different words for every paper by its own distribution: the largest of log p + Gumbel noise."""
    common = 1 / (np.arange(words) + 20.0)
    own = draw.gamma(0.1, size=(labels.max() + 1, words))  # a tenth of the words make up most of a topic
    own /= own.sum(1, keepdims=True)
    mixed = loyalty[:, None] * own[labels] + (1 - loyalty[:, None]) * own[second]
    chance = (1 - topic) * common / common.sum() + topic * mixed
    noisy = np.log(chance) + draw.gumbel(size=chance.shape)
    count = np.clip(draw.poisson(each, (len(labels), 1)), 1, words)
    least = np.take_along_axis(np.sort(noisy, axis=1), words - count, axis=1)
    return (noisy >= least).astype(np.float32)


def _check(given: dict) -> None:
    least = {"classes": 2, "words": 1, "per_class": 1, "degree": 2.0, "words_each": 0.0}
    for name, low in least.items():
        if not given[name] >= low:
            raise ValueError(f"citations(): {name}={given[name]} must be {low} or more")
    nodes, some = given["nodes"], 10 * given["classes"]
    if nodes < some:
        raise ValueError(f"citations(): nodes={nodes} must be {some} or more for {given['classes']} classes")
    if given["degree"] > nodes / 20:
        raise ValueError(f"citations(): degree={given['degree']} must be at most nodes / 20 = {nodes / 20}")
    if not 0 <= given["homophily"] <= 1:
        raise ValueError(f"citations(): homophily={given['homophily']} must be between 0 and 1")
    if not 0 <= given["topic"] < 1:
        raise ValueError(f"citations(): topic={given['topic']} must be 0 or more and less than 1")
