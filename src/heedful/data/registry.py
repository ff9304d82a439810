"""Every dataset by name: what it is, its terms, where its files are, and who reads or makes it.

Only facts stand here, so that listing the sets needs neither torch nor a network. The loader is named
"module:function" and imported when first used, or is a function; with files it gets their contents, without
only the options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, resources

from ..phrases import suggestion


@dataclass(frozen=True)
class File:
    """One file: its path in HEEDFUL_DATA and in the cache, what it must hash to, its public addresses."""

    path: str
    size: int
    sha256: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A set that `load` knows. `print(describe(name))` is its card."""

    name: str
    kind: str
    what: str
    loader: str | Callable
    terms: str
    cite: str = ""
    files: tuple[File, ...] = ()
    stand_in: File | None = None  # a local file that serves instead of all of `files`
    aliases: tuple[str, ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)

    def function(self) -> Callable:
        """The loader itself."""
        if callable(self.loader):
            return self.loader
        module, _, name = self.loader.partition(":")
        return getattr(import_module(f"{__package__}.{module}"), name)

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.kind}): {self.what}", f"terms: {self.terms}"]
        lines += [f"cite: {self.cite}"] if self.cite else []
        if self.files:
            lines.append(f"{len(self.files)} files, {readable(self.size)}")
        lines += [f"  {file.path}  {file.size:,} bytes  sha256 {file.sha256}" for file in self.files[:8]]
        lines += [f"  … and {len(self.files) - 8} more"] if len(self.files) > 8 else []
        if self.files:
            lines += [f"  from {address}" for address in self.files[0].addresses]
        return "\n".join(lines)


def find(name: str) -> Dataset:
    """The set of that name; case and - or _ do not matter."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a dataset is text, got {type(name).__name__}")
    wanted = name.lower().replace("_", "-")
    for entry in DATASETS.values():
        if wanted == entry.name or wanted in entry.aliases:
            return entry
    near = suggestion(wanted, DATASETS) or "."
    raise ValueError(f"unknown dataset {name!r}{near} Known: {', '.join(DATASETS)}")


def readable(size: int) -> str:
    """Bytes as a person says them.

    >>> readable(931), readable(168_052), readable(170_052_171)
    ('931 B', '168 kB', '170 MB')
    """
    for unit, scale in (("MB", 1_000_000), ("kB", 1000)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}" if size < 100 * scale else f"{size / scale:.0f} {unit}"
    return f"{size} B"


@cache
def _sums() -> dict[str, tuple[str, int]]:
    """sha256 and size of each path."""
    lines = resources.files(__package__).joinpath("checksums.txt").read_text().splitlines()
    rows = (line.split(" ", 2) for line in lines if not line.startswith("#"))
    return {path: (sha256, int(size)) for sha256, size, path in rows}


def _file(path: str, *addresses: str) -> File:
    sha256, size = _sums()[path]
    return File(path, size, sha256, addresses)


def _raw(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _planetoid(name: str, what: str, cite: str) -> Dataset:
    def file(part: str) -> File:
        path = f"data/ind.{name}.{part}"
        commit = "af6abf468a772cc055bec88c52e4d6f51b7c37e3"
        repository = "kimiyoung/planetoid"
        return _file(
            f"planetoid/ind.{name}.{part}",
            _raw(repository, commit, path),
            f"https://github.com/{repository}/raw/master/{path}",
        )

    return Dataset(
        name,
        "graph",
        what,
        f"formats.planetoid:{name}",
        terms="published for research, no licence stated; the repository that keeps the files is MIT",
        cite=f"Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016; {cite}",
        files=tuple(file(part) for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")),
    )


def _mnist(name: str) -> File:
    return _file(
        f"mnist/{name}",
        f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}",
        f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}",
        f"http://yann.lecun.com/exdb/mnist/{name}",
    )


def _isbi(kind: str, number: int) -> File:
    path = f"data/membrane/train/{kind}/{number}.png"
    return _file(
        f"isbi2012/train/{kind}/{number}.png",
        _raw("zhixuhao/unet", "909ae9b5fefd8a55900e24a771b073b1d4ef70ff", path),
        _raw("zhixuhao/unet", "master", path),
    )


_SEN = "Sen et al., Collective Classification in Network Data, AI Magazine 2008"
_KRIZHEVSKY = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
_CIFAR = _file("cifar10/cifar-10-binary.tar.gz", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz")
_OURS = "generated here, free to use"

_EVERY = (
    _planetoid(
        "cora",
        "2,708 papers on machine learning, 5,278 citations, 1,433 words; 20 labels a class, 500, 1,000",
        _SEN,
    ),
    _planetoid(
        "citeseer",
        "3,327 papers, 4,552 citations, 3,703 words; 20 labels a class, 500, 1,000",
        _SEN,
    ),
    _planetoid(
        "pubmed",
        "19,717 papers on diabetes, 44,324 citations, tf-idf of 500 words; 20 labels a class, 500, 1,000",
        "Namata et al., Query-driven Active Surveying for Collective Classification, MLG 2012",
    ),
    Dataset(
        "cora-linqs",
        "graph",
        "Cora as first released: other node order, no split given; 140 random labels, the rest tested",
        "formats.linqs:cora",
        terms="none stated; research use",
        cite=_SEN,
        files=(_file("cora_linqs/cora.tgz", "https://linqs-data.soe.ucsc.edu/public/lbc/cora.tgz"),),
    ),
    Dataset(
        "mnist",
        "images",
        "handwritten digits, 60,000 to train on and 10,000 to test, 28×28 grey",
        "formats.idx:mnist",
        terms="commonly given as CC BY-SA 3.0 (Y. LeCun, C. Cortes; derived from NIST)",
        cite="LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998",
        files=tuple(
            _mnist(f"{part}-{rest}-ubyte.gz")
            for part in ("train", "t10k")
            for rest in ("images-idx3", "labels-idx1")
        ),
    ),
    Dataset(
        "cifar10",
        "images",
        "photographs of ten kinds of things, 50,000 to train on and 10,000 to test, 32×32 colour",
        "formats.cifar:whole",
        terms="none stated",
        cite=_KRIZHEVSKY,
        files=(_CIFAR,),
    ),
    Dataset(
        "cifar10-10k",
        "images",
        "the first 1,000 training and 200 test images of each class of CIFAR-10",
        "formats.cifar:part",
        terms="none stated",
        cite=_KRIZHEVSKY,
        files=(_CIFAR,),
        stand_in=_file("cifar10/cifar10_10k_2k.npz"),
    ),
    Dataset(
        "isbi2012",
        "segmentation",
        "30 electron micrographs of a fly's nerve cord, 512×512, with cell membranes traced",
        "formats.isbi:load",
        terms="free for non-commercial segmentation research; publications must cite",
        cite="Cardona et al., PLoS Biology 2010; Arganda-Carreras et al., Frontiers in Neuroanatomy 2015",
        files=tuple(_isbi(kind, number) for kind in ("image", "label") for number in range(30)),
    ),
    Dataset(
        "fairytales",
        "text",
        "Grimms' Fairy Tales, Project Gutenberg 2591 as of 2016: 540,241 characters, 87 symbols",
        "formats.text:fairytales",
        terms="public domain in the USA; the Project Gutenberg licence is in the file",
        cite="Jacob and Wilhelm Grimm, tr. Taylor and Edwardes",
        files=(
            _file(
                "text/book_EN_grimms_fairy_tales.txt",
                _raw(
                    "uvadlc/uvadlc_practicals_2024",
                    "HEAD",
                    "assignment2/part2/assets/book_EN_grimms_fairy_tales.txt",
                ),
                _raw(
                    "uvadlc/uvadlc_practicals_2023",
                    "HEAD",
                    "assignment3/part3/assets/book_EN_grimms_fairy_tails.txt",
                ),
            ),
        ),
        aliases=("grimm",),
    ),
    Dataset(
        "shakespeare",
        "text",
        "tiny Shakespeare: 1,115,393 characters of his plays, 65 symbols",
        "formats.text:shakespeare",
        terms="public domain",
        cite="Karpathy, char-rnn, 2015",
        files=(
            _file(
                "text/tiny_shakespeare.txt",
                _raw("karpathy/char-rnn", "master", "data/tinyshakespeare/input.txt"),
            ),
        ),
        stand_in=_file("text/tiny_shakespear.txt"),
        aliases=("tiny-shakespeare",),
    ),
    Dataset(
        "digits",
        "images",
        "handwritten digits, 1,437 to train on and 360 to test, 8×8 grey, 0 to 16",
        "embedded:digits",
        terms="CC BY 4.0 (UCI); comes with scikit-learn",
        cite="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
    ),
    Dataset(
        "karate",
        "graph",
        "34 members of a karate club and its two factions; the leaders labelled, the others tested",
        "embedded:karate",
        terms="comes with networkx (BSD)",
        cite="Zachary, An Information Flow Model for Conflict and Fission in Small Groups, 1977",
    ),
    Dataset(
        "les-miserables",
        "graph",
        "77 characters of the novel, weighted by common scenes; classes are communities found by modularity",
        "embedded:les_miserables",
        terms="comes with networkx (BSD)",
        cite="Knuth, The Stanford GraphBase, 1993",
    ),
    Dataset(
        "python-docs",
        "text",
        "the topics of Python's own help(): about half a million characters, other in each version",
        "embedded:python_docs",
        terms="comes with Python (PSF licence)",
    ),
    Dataset(
        "boxes",
        "images",
        "a red and a green box, 32×32: which is to the left? The height gives it away, but not in the test",
        "generators.boxes:boxes",
        terms=_OURS,
        cite="Kayhan and van Gemert, On Translation Invariance in CNNs, CVPR 2020",
    ),
    Dataset(
        "autoencoder-set",
        "vectors",
        "20,000 Gaussian vectors of 100 features, 20 directions with ten times the variance of the rest",
        "generators.gaussian:autoencoder_set",
        terms=_OURS,
    ),
    Dataset(
        "membranes",
        "segmentation",
        "cells and their membranes as an electron microscope might show them",
        "generators.membranes:membranes",
        terms=_OURS,
    ),
    Dataset(
        "citations",
        "graph",
        "a citation graph with words, like Cora in size, degrees, mixing and sparsity",
        "generators.citations:citations",
        terms=_OURS,
        cite="Karrer and Newman, Stochastic Blockmodels and Community Structure in Networks, 2011",
    ),
    Dataset(
        "copying",
        "sequences",
        "repeat at every step the symbol heard `lag` steps ago",
        "generators.lags:copying",
        terms=_OURS,
        cite="after Hochreiter and Schmidhuber, Long Short-Term Memory, 1997",
    ),
    Dataset(
        "recall",
        "sequences",
        "name the first symbol after `lag` others",
        "generators.lags:recall",
        terms=_OURS,
        cite="after Hochreiter and Schmidhuber, Long Short-Term Memory, 1997",
    ),
)

DATASETS = {entry.name: entry for entry in _EVERY}
