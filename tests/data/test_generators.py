"""Generated sets have the properties they are made for."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from heedful import data

# boxes


def test_boxes_are_the_published_ones():
    """Bit for bit those of the published generator: these are the hashes of what it makes."""
    found = data.boxes()
    hashes = {
        name: hashlib.sha256(part.inputs.numpy().tobytes()).hexdigest() for name, part in found.parts.items()
    }
    assert hashes == {
        "train": "ca0865456557ff2cb462f18731080112597b91134365e912d9c3e5191b18d8e1",
        "val": "b6adcb2b1312ed402db34f6f7a34c6cea0cacfbbac651fe465779c9cbec59e9d",
        "test": "aae3eeb653b3e9e9b0a043a027ae7e4b8375850df32641223c5a0d5a4cf905db",
    }


def corners(image: torch.Tensor) -> list[tuple[int, int]]:
    """Top and left of the red and of the green box."""
    found = []
    for channel in image[:2]:
        rows, columns = (channel.amax(axis).nonzero().squeeze(1) for axis in (1, 0))
        assert len(rows) == len(columns) == 4 and int((channel > 0).sum()) == 16
        found.append((int(rows[0]), int(columns[0])))
    assert not image[2].any()
    return found


@pytest.mark.parametrize("clean", [False, True])
def test_boxes_are_where_they_should_be(seed, clean):
    found = data.boxes(train=300, val=100, test=100, clean=clean, seed=seed)
    for name, part in found.parts.items():
        for image, label in zip(*part[:], strict=True):
            (red_y, red_x), (green_y, green_x) = corners(image)
            left, right = (red_x, green_x) if label == 0 else (green_x, red_x)
            assert left in range(10) and right - left >= 5 and right < 28
            height = {0: 7, 1: 23}[int(label)] if name != "test" else {0: 23, 1: 7}[int(label)]
            assert red_y - height in range(-4, 4) and green_y - height in range(-4, 4)
        assert part.labels.tolist() == [place % 2 for place in range(len(part))]


def test_validation_is_training_unless_clean(seed):
    found = data.boxes(seed=seed)
    assert torch.equal(found.val.inputs, found.train.inputs[:1000])
    moved = torch.stack(
        [image.roll(-16 if place % 2 == 0 else 16, 1) for place, image in enumerate(found.test.inputs)]
    )
    assert torch.equal(moved, found.train.inputs[:1000])

    clean = data.boxes(clean=True, seed=seed)
    back = torch.stack(
        [image.roll(-16 if place % 2 == 0 else 16, 1) for place, image in enumerate(clean.test.inputs)]
    )
    every = torch.cat([clean.train.inputs, clean.val.inputs, back])
    assert len({image.numpy().tobytes() for image in every}) == 4000


# autoencoder_set


def test_the_autoencoder_set_has_its_spectrum(seed):
    found = data.autoencoder_set(seed=seed)
    assert [len(part) for part in found.parts.values()] == [14000, 4000, 2000]
    x = torch.cat([part.inputs for part in found.parts.values()]).double()
    spectrum = torch.linalg.eigvalsh(x.T @ x / len(x)).flip(0)
    assert ((spectrum[:20] / 10 - 1).abs() < 0.15).all() and ((spectrum[20:] - 1).abs() < 0.15).all()
    # The best linear autoencoder with k units leaves the smaller eigenvalues.
    assert spectrum[5:].sum().item() == pytest.approx(230, rel=0.02)
    assert spectrum[20:].sum().item() == pytest.approx(80, rel=0.02)
    assert x.mean(0).abs().max() < 0.2
    assert 0.45 < found.train.labels.float().mean() < 0.55


def test_the_class_is_in_the_strong_directions(seed):
    """A linear probe on the leading 20 components finds it; on the rest it guesses."""
    found = data.autoencoder_set(seed=seed)
    x, y = found.train.inputs.double(), found.train.labels
    vectors = torch.linalg.eigh(x.T @ x).eigenvectors
    scores = {}
    for name, basis in {"strong": vectors[:, -20:], "weak": vectors[:, :80]}.items():
        weight = torch.linalg.lstsq(x @ basis, (2.0 * y - 1).double()).solution
        scores[name] = (
            ((found.test.inputs.double() @ basis @ weight > 0) == (found.test.labels == 1)).float().mean()
        )
    assert scores["strong"] > 0.95 and scores["weak"] < 0.6


# membranes


def test_membranes_look_like_the_real_ones(seed):
    found = data.membranes(count=6, size=96, seed=seed)
    inside = found.masks.float().mean((1, 2))
    assert inside.min() > 0.7 and inside.max() < 0.9
    pixels = found.images[:, 0].float()
    dark, light = pixels[found.masks == 0].mean(), pixels[found.masks == 1].mean()
    assert dark + 25 < light
    # A threshold alone does worse than 95 %: there are dark things inside cells, and noise.
    best = max(((pixels > t) == (found.masks == 1)).float().mean() for t in range(40, 200, 4))
    assert inside.mean() < best < 0.97


def test_membranes_enclose_cells(seed):
    from scipy.ndimage import label

    found = data.membranes(count=3, size=128, seed=seed)
    for mask in found.masks:
        regions, count = label(mask.numpy())
        assert count > 5 and np.bincount(regions[regions > 0]).max() < 0.6 * mask.numel()


# citations


def test_citations_are_like_cora(seed):
    found = data.citations(seed=seed)
    graph, labels = found.graph, found.labels
    assert (graph.nodes, graph.edges, found.features.shape[1]) == (2708, 2 * 5281, 1433)
    assert graph.without_self_loops().coalesce().edges == graph.edges
    degree = graph.degree()
    assert degree.min() >= 1 and degree.max() > 40 and degree.median() <= 3  # a heavy tail
    same = (labels[graph.source] == labels[graph.target]).float().mean()
    assert same.item() == pytest.approx(0.81, abs=0.05)
    assert found.features.mean().item() == pytest.approx(0.0127, abs=0.0003)
    assert [len(part) for part in found.parts.values()] == [140, 500, 1000]
    assert torch.bincount(labels[found.train]).tolist() == [20] * 7


def test_listening_to_neighbours_helps(seed):
    """A linear classifier on words averaged over two hops beats one on a paper's own words, by far."""
    from sklearn.linear_model import LogisticRegression

    found = data.citations(seed=seed).row_normalized()
    step = found.graph.with_self_loops().normalized()
    heard = step.propagate(step.propagate(found.features))
    scores = []
    for x in (found.features, heard):
        model = LogisticRegression(C=1000.0, max_iter=1000)
        model.fit(x[found.train].numpy(), found.labels[found.train].numpy())
        scores.append(model.score(x[found.test].numpy(), found.labels[found.test].numpy()))
    alone, together = scores
    assert 0.35 < alone < 0.75 and together > alone + 0.1


def test_citations_take_what_they_are_given(seed):
    found = data.citations(
        nodes=500, classes=3, words=80, degree=6.0, homophily=0.3, words_each=8.0, seed=seed
    )
    assert found.graph.edges == 3000 and len(found.classes) == 3
    assert found.features.sum(1).mean().item() == pytest.approx(8, abs=1)
    labels = found.labels
    same = (labels[found.graph.source] == labels[found.graph.target]).float().mean()
    assert same < 0.55
    none = data.citations(nodes=500, homophily=0.0, seed=seed)
    assert (none.labels[none.graph.source] != none.labels[none.graph.target]).all()
    only = data.citations(nodes=500, homophily=1.0, seed=seed)
    assert (only.labels[only.graph.source] == only.labels[only.graph.target]).all()


# lags


def test_copying(seed):
    found = data.copying(lag=7, length=30, symbols=5, seed=seed)
    for part in found.parts.values():
        assert torch.equal(part.labels[:, 7:], part.inputs[:, :-7]) and (part.labels[:, :7] == -100).all()
        assert part.inputs.unique().tolist() == [0, 1, 2, 3, 4]
    assert data.copying(lag=3).train.inputs.shape == (2000, 7)
    assert not torch.equal(found.train.inputs[:500], found.val.inputs)


@pytest.mark.parametrize("lag", [1, 2, 20])
def test_recall(seed, lag):
    found = data.recall(lag=lag, symbols=4, distractors=3, seed=seed)
    for part in found.parts.values():
        assert part.inputs.shape[1] == lag + 1 and torch.equal(part.labels, part.inputs[:, 0])
        assert (part.inputs[:, -1] == 7).all() and part.labels.unique().tolist() == [0, 1, 2, 3]
        if lag > 1:
            assert set(part.inputs[:, 1:-1].unique().tolist()) == {4, 5, 6}
    assert found.symbols == 8 and found.lag == lag


# Bad input


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: data.boxes(train=0), "train=0 must be 1 or more"),
        (lambda: data.boxes(clean=True, train=20000), "room for 10000"),
        (lambda: data.autoencoder_set(strong=101), "strong=101 must be between 1 and features=100"),
        (lambda: data.autoencoder_set(samples=3), "samples=3"),
        (lambda: data.autoencoder_set(variance=0.0), "variance=0.0"),
        (lambda: data.membranes(count=1), "count=1 must be 2 or more"),
        (lambda: data.membranes(size=8), "size=8"),
        (lambda: data.membranes(cell=300.0), "cell=300.0 must be between 8 and size=128"),
        (lambda: data.membranes(noise=-1.0), "noise=-1.0"),
        (lambda: data.citations(nodes=60), "nodes=60 must be 70 or more for 7 classes"),
        (lambda: data.citations(classes=1), "classes=1 must be 2 or more"),
        (lambda: data.citations(degree=1.0), "degree=1.0 must be 2.0 or more"),
        (lambda: data.citations(nodes=100, degree=50.0), "at most nodes / 20"),
        (lambda: data.citations(homophily=1.2), "homophily=1.2"),
        (lambda: data.citations(topic=1.0), "topic=1.0"),
        (lambda: data.copying(lag=0), "lag=0 must be 1 or more"),
        (lambda: data.copying(lag=5, length=5), "length=5 must be more than lag=5"),
        (lambda: data.copying(symbols=1), "symbols=1"),
        (lambda: data.recall(distractors=0), "distractors=0"),
        (lambda: data.recall(test=0), "must be 1 or more"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
