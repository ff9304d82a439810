"""Datasets by name, found in HEEDFUL_DATA, the cache or at their public address, and generators of others.

>>> from heedful import data
>>> club = data.load("karate")
>>> club.graph, club.classes
(Graph(34 nodes, 156 edges), ('Mr. Hi', 'Officer'))
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files as _files
from .files import DataError, Place
from .registry import DATASETS, Dataset, File, find

if TYPE_CHECKING:
    from .formats.picture import picture, save_picture
    from .formats.text import text_file
    from .generators.boxes import boxes
    from .generators.citations import citations
    from .generators.gaussian import autoencoder_set
    from .generators.lags import copying, recall
    from .generators.membranes import membranes
    from .kinds import (
        Examples,
        GraphData,
        ImageData,
        LabelledData,
        SegmentationData,
        SequenceData,
        TextData,
        VectorData,
    )
    from .tokens import Characters, Pieces, tokens_of

__all__ = [
    "Characters",
    "DataError",
    "Dataset",
    "Examples",
    "File",
    "GraphData",
    "ImageData",
    "LabelledData",
    "Pieces",
    "Place",
    "SegmentationData",
    "SequenceData",
    "TextData",
    "VectorData",
    "autoencoder_set",
    "boxes",
    "citations",
    "copying",
    "describe",
    "fetch",
    "load",
    "membranes",
    "names",
    "picture",
    "recall",
    "register",
    "save_picture",
    "text_file",
    "tokens_of",
    "where",
]

# These need torch, which listing the sets does not.
_LATER = {
    "Characters": "tokens",
    "Pieces": "tokens",
    "autoencoder_set": "generators.gaussian",
    "boxes": "generators.boxes",
    "citations": "generators.citations",
    "copying": "generators.lags",
    "membranes": "generators.membranes",
    "picture": "formats.picture",
    "recall": "generators.lags",
    "save_picture": "formats.picture",
    "text_file": "formats.text",
    "tokens_of": "tokens",
}


def load(name: str, **options) -> Any:
    """The data of that name, ready to use; files it needs are found, fetched and checked first.

    Options go to the set's reader or generator: `load("citations", seed=3)`, `load("cora-linqs", train=140)`.

    >>> load("digits")
    ImageData(digits: train 1437, test 360 × 1×8×8 uint8, 10 classes)
    """
    entry = find(name)
    make = entry.function()
    known = [name for name in inspect.signature(make).parameters if name != "files"]
    for option in options:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise TypeError(f"load({entry.name!r}) has no option {option!r}; {takes}")
    return make(_files.contents(entry), **options) if entry.files else make(**options)


def names(kind: str | None = None) -> list[str]:
    """The sets there are: all, or those of one kind.

    >>> names("text")
    ['fairytales', 'shakespeare', 'python-docs']
    """
    kinds = list(dict.fromkeys(entry.kind for entry in DATASETS.values()))
    if kind is not None and kind not in kinds:
        raise ValueError(f"names(): unknown kind {kind!r}; known: {', '.join(kinds)}")
    return [name for name, entry in DATASETS.items() if kind in (None, entry.kind)]


def describe(name: str) -> Dataset:
    """What a set is: print it.

    >>> print(describe("karate"))
    karate (graph): 34 members of a karate club and its two factions; the leaders labelled, the others tested
    terms: comes with networkx (BSD)
    cite: Zachary, An Information Flow Model for Conflict and Fission in Small Groups, 1977
    """
    return find(name)


def register(entry: Dataset) -> Dataset:
    """Make a set of one's own known by its name; its loader is a function, or one of this package by name.

    >>> import torch
    >>> card = Dataset("two-points", "vectors", "two points", lambda: torch.eye(2), terms="free to use")
    >>> register(card).name in names(), load("two-points").shape
    (True, torch.Size([2, 2]))
    >>> del DATASETS["two-points"]
    """
    if not isinstance(entry, Dataset):
        raise TypeError(f"register(): takes a Dataset, got {type(entry).__name__}")
    taken = {name for known in DATASETS.values() for name in (known.name, *known.aliases)}
    if entry.name in taken or entry.name != entry.name.lower().replace("_", "-"):
        why = "is taken" if entry.name in taken else "must be in lower case, with - for _"
        raise ValueError(f"register(): the name {entry.name!r} {why}. Known: {', '.join(DATASETS)}")
    DATASETS[entry.name] = entry
    return entry


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Have a set's files here, whole; their paths. Nothing to do for sets that are built in or generated.

    >>> fetch("karate")
    []
    """
    entry = find(name)
    _files.contents(entry, progress=progress)
    return [Path(place.at) for place in where(name)]


def where(name: str) -> list[Place]:
    """Where each file of a set is, or would be fetched from. Sets that are built in or generated have none.

    >>> where("karate")
    []
    """
    return [_files.place(file) for file in _files.needed(find(name))]


def __getattr__(name: str):
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_LATER.get(name, 'kinds')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
