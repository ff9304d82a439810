"""Sets that come with Python, scikit-learn and networkx: always there."""

from __future__ import annotations

import numpy as np
import torch

from ..graphs import Graph
from .kinds import Examples, GraphData, ImageData, TextData


def digits(*, seed: int = 0) -> ImageData:
    """scikit-learn's 1,797 digits of 8×8 pixels from 0 to 16, four fifths to train on."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.RandomState(seed).permutation(len(found.target))
    images = torch.from_numpy(found.images.astype(np.uint8)).unsqueeze(1)
    every = Examples(images[order], torch.from_numpy(found.target[order]).long())
    parts = every.take(slice(1437)), every.take(slice(1437, None))
    return ImageData("digits", *parts, classes=tuple("0123456789"), peak=16)


def karate() -> GraphData:
    """Zachary's club: who sided with the instructor, who with the officer? The two are labelled."""
    import networkx

    club = networkx.karate_club_graph()
    classes = ("Mr. Hi", "Officer")
    labels = torch.tensor([classes.index(club.nodes[member]["club"]) for member in club])
    leaders = torch.tensor([0, 33])
    return GraphData(
        "karate",
        Graph.from_networkx(club, weight=None),
        torch.eye(34),
        labels,
        train=leaders,
        val=leaders[:0],
        test=torch.arange(1, 33),
        classes=classes,
        node_names=tuple(map(str, club)),
    )


def les_miserables(*, seed: int = 0) -> GraphData:
    """Who appears with whom, weighted by how often. Two of each community are labelled.

    The novel gives no classes: these are the communities greedy modularity finds, named after their
    best connected character.
    """
    import networkx

    novel = networkx.les_miserables_graph()
    names = list(novel)
    degree = dict(novel.degree(weight="weight"))
    communities = networkx.community.greedy_modularity_communities(novel, weight="weight")
    leaders = [min(community, key=lambda name: (-degree[name], name)) for community in communities]
    member = {name: number for number, community in enumerate(communities) for name in community}
    labels = torch.tensor([member[name] for name in names])
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(names)))
    train = torch.cat([order[labels[order] == label][:2] for label in range(len(communities))]).sort().values
    rest = torch.ones(len(names), dtype=torch.bool)
    rest[train] = False
    return GraphData(
        "les-miserables",
        Graph.from_networkx(novel),
        torch.eye(len(names)),
        labels,
        train=train,
        val=train[:0],
        test=rest.nonzero().squeeze(1),
        classes=tuple(leaders),
        node_names=tuple(names),
    )


def python_docs() -> TextData:
    """The topics `help()` knows, in alphabetical order. Another text in every version of Python."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise FileNotFoundError(
            "python-docs: this Python came without pydoc_data. Use another text: data.text_file(path)."
        ) from None
    return TextData("python-docs", "\n\n".join(topics[name] for name in sorted(topics)))
