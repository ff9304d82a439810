"""Every registered set goes through the same checks, because it is registered."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys

import pytest
import torch

from heedful import data
from heedful.data import registry

NAMES = data.names()
KINDS = {
    "graph": "GraphData",
    "images": "ImageData",
    "text": "TextData",
    "segmentation": "SegmentationData",
    "vectors": "VectorData",
    "sequences": "SequenceData",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_is_complete(name):
    entry = data.describe(name)
    assert entry.name == name and entry.kind in KINDS and len(entry.what) > 20 and entry.terms
    assert re.fullmatch(r"[a-z0-9-]+", name)
    make = entry.function()
    assert make.__doc__ and all(
        parameter.kind is parameter.KEYWORD_ONLY
        for key, parameter in inspect.signature(make).parameters.items()
        if key != "files"
    )
    assert ("files" in inspect.signature(make).parameters) == bool(entry.files)
    for file in entry.files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 and file.addresses
        assert all(re.match("https?://[^/]+/", address) for address in file.addresses)
        assert not file.path.startswith("/") and ".." not in file.path
    card = str(entry)
    assert name in card and entry.terms in card
    assert all(file.sha256 in card for file in entry.files[:8])
    if entry.files:
        assert entry.files[0].addresses[0] in card


@pytest.mark.parametrize("name", NAMES)
def test_the_data_is_what_its_kind_says(name, real):
    found = real(name)
    entry = data.describe(name)
    assert type(found).__name__ == KINDS[entry.kind] and found.name == name
    assert len(repr(found)) < 200 and name in repr(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "other"
    globals()[f"check_{entry.kind}"](found)


def check_graph(found):
    nodes = found.graph.nodes
    assert found.features.shape[0] == len(found.labels) == nodes and found.features.dtype == torch.float32
    assert found.labels.dtype == torch.int64 and found.labels.max() < len(found.classes)
    every = torch.cat(list(found.parts.values()))
    assert len(every.unique()) == len(every) and every.min() >= 0 and every.max() < nodes
    assert every.dtype == torch.int64 and len(found.train) and len(found.test)
    assert (found.labels[every] >= 0).all()
    back = found.graph.reverse().coalesce().to_edge_index()
    assert torch.equal(found.graph.coalesce().to_edge_index(), back)  # who is heard also listens
    assert torch.equal(found.sparse.to_dense(), found.features)
    normal = found.row_normalized().features.sum(1)
    assert ((normal - 1).abs() < 1e-4).logical_or(normal == 0).all()
    assert not found.node_names or len(found.node_names) == nodes
    assert found.to("meta").features.device.type == "meta" if nodes < 100 else True


def check_labelled(found):
    for part in found.parts.values():
        assert len(part.inputs) == len(part.labels) > 0
        assert part.labels.dtype == torch.int64
        assert part.inputs.shape[1:] == found.train.inputs.shape[1:]
        asked = part.labels[part.labels != -100]
        assert asked.min() >= 0 and asked.max() < len(found.classes)


def check_images(found):
    check_labelled(found)
    assert found.train.inputs.ndim == 4 and found.train.inputs.dtype == torch.uint8
    for part in found.parts.values():
        assert part.inputs.min() == 0 and part.inputs.max() == found.peak
        assert len(part.labels.unique()) == len(found.classes)


def check_vectors(found):
    check_labelled(found)
    assert found.train.inputs.ndim == 2 and found.train.inputs.dtype == torch.float32


def check_sequences(found):
    check_labelled(found)
    assert found.train.inputs.dtype == torch.int64 and found.train.inputs.max() < found.symbols


def check_segmentation(found):
    assert found.images.dtype == torch.uint8 and found.images.shape[1] == 1
    assert found.masks.shape == (found.images.shape[0], *found.images.shape[2:])
    assert found.masks.dtype == torch.int64 and found.masks.unique().tolist() == list(
        range(len(found.classes))
    )
    both = torch.cat([found.train, found.val])
    assert torch.equal(both.sort().values, torch.arange(len(found.images)))
    assert found.scaled().images.max() <= 1 and found.scaled().scaled().images.dtype == torch.float32


def check_text(found):
    assert len(found.text) > 100_000 and set(found.text) == set(found.vocabulary)
    assert found.decode(found.codes[:500]) == found.text[:500]
    assert len(found.codes) == len(found.text)


GENERATED = [name for name in NAMES if data.describe(name).loader.startswith(("generators", "embedded"))]


def tensors(found) -> list[torch.Tensor]:
    parts = [part for part in found.parts.values() if isinstance(part, data.Examples)]
    if hasattr(found, "parts") and parts:
        return [tensor for part in parts for tensor in (part.inputs, part.labels)]
    return [found.graph.to_edge_index(), found.features, found.labels, found.train, found.test]


@pytest.mark.parametrize("name", [name for name in GENERATED if data.describe(name).kind != "text"])
def test_seeds(name, seed):
    """The same seed gives the same set, another another; torch's and numpy's own state are left alone."""
    import numpy as np

    small = {"citations": {"nodes": 200, "words": 50}, "membranes": {"count": 2, "size": 32}}.get(name, {})
    if name == "autoencoder-set":
        small = {"samples": 50}

    def make(**options):
        found = data.load(name, **small, **options)
        if name == "membranes":
            return [found.images, found.masks]
        return tensors(found)

    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, two = make(), make()
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    if "seed" in inspect.signature(data.describe(name).function()).parameters:
        other = make(seed=seed % 1000 + 1000)
        assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert (np.random.get_state()[1] == numpy_before).all()


# Names


def test_names():
    assert len(NAMES) == len(set(NAMES)) == 20
    every = [alias for entry in registry.DATASETS.values() for alias in (entry.name, *entry.aliases)]
    assert len(every) == len(set(every))
    assert sorted(name for kind in KINDS for name in data.names(kind)) == sorted(NAMES)
    assert data.names("graph")[:3] == ["cora", "citeseer", "pubmed"]
    with pytest.raises(ValueError, match=r"unknown kind 'graphs'; known: graph, images"):
        data.names("graphs")


def test_names_are_forgiving():
    assert data.describe("Les_Miserables").name == "les-miserables"
    assert data.describe("grimm").name == "fairytales"
    assert data.describe("autoencoder_set").name == "autoencoder-set"


@pytest.mark.parametrize("call", [data.load, data.describe, data.fetch, data.where])
def test_an_unknown_name(call):
    with pytest.raises(
        ValueError, match=r"unknown dataset 'corra'; did you mean 'cora'\? Known: cora, citeseer"
    ):
        call("corra")
    with pytest.raises(TypeError, match="the name of a dataset is text, got int"):
        call(3)


def test_an_unknown_option():
    with pytest.raises(
        TypeError, match=r"load\('boxes'\) has no option 'sed'; it takes train, val, test, clean, seed"
    ):
        data.load("boxes", sed=1)
    with pytest.raises(TypeError, match=r"load\('karate'\) has no option 'seed'; it takes none"):
        data.load("karate", seed=1)
    with pytest.raises(TypeError, match="has no option 'files'"):
        data.load("mnist", files={})


# Weight


def test_listing_is_light():
    code = (
        "import sys; from heedful import data; data.names(); str(data.describe('cora')); data.where('mnist');"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'networkx', 'pooch', 'requests', 'PIL', 'rich') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_public_names():
    assert data.__all__ == sorted(data.__all__) and set(data.__all__) <= set(dir(data))
    for name in data.__all__:
        assert getattr(data, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = data.lod


def test_a_set_of_one_s_own(monkeypatch):
    monkeypatch.setattr(registry, "DATASETS", dict(registry.DATASETS))
    monkeypatch.setattr(data, "DATASETS", registry.DATASETS)
    card = data.Dataset("mine", "vectors", "three ones", lambda *, count=3: torch.ones(count), terms="free")
    assert data.register(card) is card and "mine" in data.names("vectors")
    assert torch.equal(data.load("mine", count=2), torch.ones(2))
    with pytest.raises(TypeError, match="it takes count"):
        data.load("mine", length=2)
    with pytest.raises(ValueError, match="'mine' is taken"):
        data.register(card)
    with pytest.raises(ValueError, match="lower case"):
        data.register(dataclasses.replace(card, name="Mine_too"))
    with pytest.raises(TypeError, match="takes a Dataset, got str"):
        data.register("mine")
