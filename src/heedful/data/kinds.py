"""What `load` returns: one small frozen dataclass for each kind of data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ..graphs import Graph
from .tokens import Characters


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Inputs and their labels, first dimension alike. A DataLoader takes it as it is.

    >>> pair = Examples(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]))
    >>> pair, pair[2][1]
    (Examples(3 × 1×8×8 uint8), tensor(1))
    """

    inputs: Tensor
    labels: Tensor

    def __post_init__(self):
        if len(self.inputs) != len(self.labels):
            raise ValueError(f"Examples: {len(self.inputs)} inputs and {len(self.labels)} labels must match")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.labels[index]

    def take(self, index) -> Examples:
        """Some of them: a slice, numbers or a mask."""
        return Examples(*self[index])

    def to(self, device) -> Examples:
        """The same on another device."""
        return Examples(self.inputs.to(device), self.labels.to(device))

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.inputs.shape[1:])) or "1"
        return f"Examples({len(self)} × {shape} {str(self.inputs.dtype).removeprefix('torch.')})"


@dataclass(frozen=True, eq=False, repr=False)
class LabelledData:
    """Labelled examples in up to three parts: train, val (None where the set has none) and test."""

    name: str
    train: Examples
    test: Examples
    val: Examples | None = None
    classes: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Examples]:
        """The parts there are, by name."""
        every = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in every.items() if part is not None}

    def to(self, device):
        """The same on another device."""
        return replace(self, **{name: part.to(device) for name, part in self.parts.items()})

    def hold_out(self, count: int, *, seed: int | None = None):
        """The same with `count` training examples moved to val: the last, or with a seed any.

        >>> from heedful import data
        >>> data.load("digits").hold_out(100)
        ImageData(digits: train 1337, val 100, test 360 × 1×8×8 uint8, 10 classes)
        """
        if self.val is not None:
            raise ValueError(f"hold_out(): {self.name} has a val part already, of {len(self.val)}")
        if not 0 < count < len(self.train):
            raise ValueError(f"hold_out(): count={count} must be between 1 and {len(self.train) - 1}")
        if seed is None:
            order = torch.arange(len(self.train))
        else:
            order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        return replace(self, train=self.train.take(order[:-count]), val=self.train.take(order[-count:]))

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(part)}" for name, part in self.parts.items())
        shape = repr(self.train).partition("× ")[2].removesuffix(")")
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return f"{type(self).__name__}({self.name}: {counts} × {shape}{classes})"


@dataclass(frozen=True, eq=False, repr=False)
class ImageData(LabelledData):
    """Images (count, channels, height, width), uint8 from 0 to `peak`, and the number of each one's class."""

    peak: int = 255

    def scaled(self) -> ImageData:
        """The same as float32 from 0 to 1.

        >>> from heedful import data
        >>> data.load("digits").scaled().train.inputs.max()
        tensor(1.)
        """
        if self.train.inputs.is_floating_point():
            return self

        def scale(part: Examples) -> Examples:
            return Examples(part.inputs.float() / self.peak, part.labels)

        val = None if self.val is None else scale(self.val)
        return replace(self, train=scale(self.train), val=val, test=scale(self.test), peak=1)


@dataclass(frozen=True, eq=False, repr=False)
class VectorData(LabelledData):
    """Vectors (count, features), float32, and the number of each one's class."""


@dataclass(frozen=True, eq=False, repr=False)
class SequenceData(LabelledData):
    """Sequences of symbols (count, length), int64 below `symbols`, and what is to be said about them.

    Labels are symbols, one a sequence or one a place; −100, which cross_entropy skips, where none is asked.
    """

    symbols: int = 0
    lag: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class GraphData:
    """A graph whose nodes have features and classes, and which of them are for training, validation and test.

    `features` is dense (nodes, features) float32, `sparse` the same as a torch CSR matrix. A label of −1
    means that the class is not known. `train`, `val` and `test` hold node numbers.

    >>> from heedful import data
    >>> data.load("karate")
    GraphData(karate: 34 nodes, 156 edges, 34 features, 2 classes; train 2, val 0, test 32)
    """

    name: str
    graph: Graph
    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    classes: tuple[str, ...]
    node_names: tuple[str, ...] = ()

    @cached_property
    def sparse(self) -> Tensor:
        """The features as a sparse CSR matrix: of Cora's, 98.7 % are zeros."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support")  # said once a process
            return self.features.to_sparse_csr()

    @property
    def parts(self) -> dict[str, Tensor]:
        """The node numbers of each part, by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def row_normalized(self) -> GraphData:
        """The same with each node's features divided by their sum (nodes without any stay at 0).

        >>> from heedful import data
        >>> data.load("citations", nodes=200).row_normalized().features.sum(1).max().round(decimals=4)
        tensor(1.)
        """
        total = self.features.sum(1, keepdim=True)
        return replace(self, features=self.features / torch.where(total == 0, 1.0, total))

    def to(self, device) -> GraphData:
        """The same on another device."""
        names = ("graph", "features", "labels", "train", "val", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(part)}" for name, part in self.parts.items())
        sizes = f"{self.graph.nodes} nodes, {self.graph.edges} edges, {self.features.shape[1]} features"
        return f"GraphData({self.name}: {sizes}, {len(self.classes)} classes; {counts})"


@dataclass(frozen=True, eq=False, repr=False)
class SegmentationData:
    """Images (count, 1, height, width) uint8 and masks (count, height, width) int64: the class of each pixel.

    `train` and `val` hold image numbers.
    """

    name: str
    images: Tensor
    masks: Tensor
    train: Tensor
    val: Tensor
    classes: tuple[str, ...]

    def scaled(self) -> SegmentationData:
        """The same with images as float32 from 0 to 1."""
        return self if self.images.is_floating_point() else replace(self, images=self.images.float() / 255)

    def to(self, device) -> SegmentationData:
        """The same on another device."""
        names = ("images", "masks", "train", "val")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def __repr__(self) -> str:
        size = f"{len(self.images)} × {'×'.join(map(str, self.images.shape[1:]))}"
        rest = f"train {len(self.train)}, val {len(self.val)}, {' / '.join(self.classes)}"
        return f"SegmentationData({self.name}: {size}, {rest})"


@dataclass(frozen=True, eq=False, repr=False)
class TextData:
    """A text, the symbols it is written in, and the numbers of its characters.

    >>> verse = TextData("verse", "abacab")
    >>> verse.vocabulary, verse.codes, verse.decode([2, 0, 1])
    (('a', 'b', 'c'), tensor([0, 1, 0, 2, 0, 1]), 'cab')
    """

    name: str
    text: str = field(repr=False)
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.vocabulary:
            object.__setattr__(self, "vocabulary", tuple(sorted(set(self.text))))

    @cached_property
    def codes(self) -> Tensor:
        """The number of each character, int64."""
        return self.encode(self.text)

    def encode(self, text: str, *, unknown: str = "error") -> Tensor:
        """The numbers of a text's characters, int64. Those not in the vocabulary: "error" or "skip".

        >>> TextData("verse", "abacab").encode("a bad cab", unknown="skip")
        tensor([0, 1, 0, 2, 0, 1])
        """
        return self._tokens.encode(text, unknown=unknown)

    def decode(self, codes) -> str:
        """The text the numbers stand for."""
        return self._tokens.decode(codes)

    @cached_property
    def _tokens(self) -> Characters:
        return Characters(self.vocabulary, self.name)

    def split(self, share: float = 0.9) -> tuple[TextData, TextData]:
        """The first `share` of the text and the rest, in one vocabulary.

        >>> [part.text for part in TextData("verse", "abacab").split(0.5)]
        ['aba', 'cab']
        """
        if not 0 < share < 1:
            raise ValueError(f"split(): share={share} must be between 0 and 1")
        place = round(len(self.text) * share)
        return tuple(replace(self, text=text) for text in (self.text[:place], self.text[place:]))  # type: ignore

    def __len__(self) -> int:
        return len(self.text)

    def __repr__(self) -> str:
        return f"TextData({self.name}: {len(self.text):,} characters, {len(self.vocabulary)} symbols)"
