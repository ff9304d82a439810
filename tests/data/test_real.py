"""Known facts about the real sets, and agreement with PyTorch Geometric's reader; skipped without them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import data
from heedful.data import files, registry

PLANETOID = {
    # nodes, undirected edges, features, non-zeros, training nodes, sizes of the classes
    "cora": (2708, 5278, 1433, 49216, 140, [351, 217, 418, 818, 426, 298, 180]),
    "citeseer": (3327, 4552, 3703, 105165, 120, [249, 590, 668, 701, 596, 508]),
    "pubmed": (19717, 44324, 500, 988031, 60, [4103, 7739, 7875]),
}


@pytest.mark.parametrize("name", PLANETOID)
def test_planetoid(real, name):
    found = real(name)
    nodes, edges, width, filled, train, sizes = PLANETOID[name]
    assert found.graph.nodes == nodes and found.features.shape == (nodes, width)
    assert found.graph.edges == 2 * edges == found.graph.undirected().coalesce().edges
    assert found.graph.without_self_loops().edges == found.graph.edges
    assert int((found.features != 0).sum()) == filled == found.sparse.values().numel()
    assert [len(part) for part in found.parts.values()] == [train, 500, 1000]
    assert torch.bincount(found.labels[found.labels >= 0]).tolist() == sizes
    assert torch.bincount(found.labels[found.train]).tolist() == [20] * len(sizes)
    assert len(found.classes) == len(sizes)


def test_citeseer_has_fifteen_strangers(real):
    found = real("citeseer")
    strangers = (found.labels == -1).nonzero().squeeze(1)
    assert len(strangers) == 15 and not found.features[strangers].any()
    for part in found.parts.values():
        assert (found.labels[part] >= 0).all()


def test_pubmed_is_tf_idf(real):
    filled = real("pubmed").features
    filled = filled[filled != 0]
    assert filled.min() == pytest.approx(0.00125, abs=1e-4) and filled.max() == pytest.approx(
        1.2633, abs=1e-4
    )


@pytest.mark.parametrize("name", PLANETOID)
def test_planetoid_is_what_geometric_reads(real, name, tmp_path):
    geometric = pytest.importorskip("torch_geometric.io.planetoid")
    found = real(name)
    folder = Path(files.place(data.describe(name).files[0]).at).parent
    theirs = geometric.read_planetoid_data(str(folder), name)
    assert torch.equal(found.features, theirs.x)
    known = found.labels >= 0
    assert torch.equal(found.labels[known], theirs.y[known])
    assert torch.equal(
        data_edges(found.graph.to_edge_index(), found.graph.nodes),
        data_edges(theirs.edge_index, found.graph.nodes),
    )
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(found, part), getattr(theirs, f"{part}_mask").nonzero().squeeze(1))


def data_edges(index: torch.Tensor, nodes: int) -> torch.Tensor:
    """One number an edge, in order."""
    return (index[0] * nodes + index[1]).sort().values


def test_linqs_cora(real):
    found = real("cora-linqs")
    assert found.graph.nodes == 2708 and found.graph.edges == 2 * 5278 and found.features.shape[1] == 1433
    assert found.classes[0] == "Case_Based" and len(found.classes) == 7 and found.node_names[0] == "31336"
    assert [len(part) for part in found.parts.values()] == [140, 0, 2568]
    assert torch.equal(torch.cat([found.train, found.test]).sort().values, torch.arange(2708))
    other = real("cora-linqs", seed=1, train=70)
    assert len(other.train) == 70 and not torch.equal(other.train, found.train[:70])
    for train in (0, 2708):
        with pytest.raises(ValueError, match=f"train={train} must be between 1 and 2707"):
            data.load("cora-linqs", train=train)


def test_both_coras_are_one(real):
    """Other order of nodes, same papers: degrees, words and classes agree."""
    ours, theirs = real("cora"), real("cora-linqs")
    names = [theirs.classes.index(name) for name in ours.classes]
    sizes = torch.bincount(theirs.labels)
    assert torch.bincount(ours.labels).tolist() == sizes[names].tolist()
    assert torch.equal(ours.graph.degree().sort().values, theirs.graph.degree().sort().values)

    def cards(found, label):  # of a paper: how connected, how many words
        rows = torch.stack([found.graph.degree(), found.features.sum(1).long()], dim=1)[found.labels == label]
        return sorted(map(tuple, rows.tolist()))

    for here, there in enumerate(names):
        assert cards(ours, here) == cards(theirs, there)


def test_mnist(real):
    found = real("mnist")
    assert found.train.inputs.shape == (60000, 1, 28, 28) and found.test.inputs.shape == (10000, 1, 28, 28)
    assert found.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert found.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert torch.bincount(found.train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    pixels = found.train.inputs.double() / 255
    assert pixels.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert pixels.std(correction=0).item() == pytest.approx(0.3081, abs=1e-4)


def test_part_of_cifar(real):
    found = real("cifar10-10k")
    assert found.train.inputs.shape == (10000, 3, 32, 32) and found.test.inputs.shape == (2000, 3, 32, 32)
    assert torch.bincount(found.train.labels).tolist() == [1000] * 10
    assert torch.bincount(found.test.labels).tolist() == [200] * 10
    assert found.train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # as in data_batch_1
    assert found.test.labels[:4].tolist() == [3, 8, 8, 0]  # cat, ship, ship, airplane
    pixels = found.train.inputs.double() / 255
    # A fifth of the whole training set, whose statistics are known.
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    assert torch.allclose(mean, torch.tensor([0.49139968, 0.48215841, 0.44653091]).double(), atol=0.005)
    assert torch.allclose(std, torch.tensor([0.24703223, 0.24348513, 0.26158784]).double(), atol=0.005)
    assert found.train.inputs[0, :, 0, 0].tolist() == [59, 62, 63]  # the frog


def test_part_of_cifar_says_where_it_was(real):
    from heedful.data.formats import cifar

    real("cifar10-10k")
    (place,) = data.where("cifar10-10k")
    if not place.at.endswith(".npz"):
        pytest.skip("only the npz has the places")
    arrays = cifar.arrays_of(Path(place.at).read_bytes())
    assert tuple(arrays["classes"].astype(str)) == cifar.CLASSES
    for part, whole in (("train", 50000), ("test", 10000)):
        places = arrays[f"idx_{part}"]
        assert (np.diff(places) > 0).all() and places[0] == 0 and places[-1] < whole


def test_whole_cifar(real):
    found = real("cifar10")
    pixels = found.train.inputs.float() / 255
    assert torch.allclose(
        pixels.mean((0, 2, 3)), torch.tensor([0.49139968, 0.48215841, 0.44653091]), atol=1e-4
    )
    assert torch.bincount(found.train.labels).tolist() == [5000] * 10


def test_membranes_of_isbi(real):
    found = real("isbi2012")
    assert found.images.shape == (30, 1, 512, 512) and found.masks.shape == (30, 512, 512)
    share = found.masks.float().mean((1, 2))
    assert share.min() > 0.72 and share.max() < 0.84 and share.mean().item() == pytest.approx(0.78, abs=0.01)
    assert found.masks.unique().tolist() == [0, 1]
    dark, light = (found.images[:, 0][found.masks == label].float().mean() for label in (0, 1))
    assert dark + 30 < light  # membranes are dark
    assert torch.equal(torch.cat([found.train, found.val]).sort().values, torch.arange(30))
    assert len(found.val) == 6 and int((found.val < 15).sum()) == 3
    rough = (found.images[:, 0].float().diff(dim=-1)).abs().mean((1, 2))
    assert rough[:15].max() < rough[15:].min()  # the halves differ, and slices are in order


def test_texts(real):
    tales = real("fairytales")
    assert len(tales) == 540241 and len(tales.vocabulary) == 87 and tales.text[0] == "\ufeff"
    assert "THE FROG-PRINCE" in tales.text and tales.decode(tales.codes[1000:1100]) == tales.text[1000:1100]
    plays = real("shakespeare")
    assert len(plays) == 1115393 and len(plays.vocabulary) == 65
    assert plays.text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")
    assert data.load("grimm").text == tales.text


def test_tiny_shakespeare_with_its_newline_is_the_public_file(real):
    """What the address serves has one byte more; its hash is known from elsewhere and must fit ours."""
    plays = real("shakespeare").text.encode() + b"\n"
    (file,) = data.describe("shakespeare").files
    assert len(plays) == file.size == 1115394
    assert hashlib.sha256(plays).hexdigest() == file.sha256


def test_every_file_that_is_here_is_whole():
    """The checksums that ship are those of the files."""
    found = 0
    for entry in registry.DATASETS.values():
        for file in [*entry.files, *([entry.stand_in] if entry.stand_in else [])]:
            place = files.place(file)
            if place.state != "remote":
                assert hashlib.sha256(Path(place.at).read_bytes()).hexdigest() == file.sha256, file.path
                found += 1
    if not found:
        pytest.skip("none are: set HEEDFUL_DATA to a folder that has them")
