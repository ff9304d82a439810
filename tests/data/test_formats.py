"""Readers: right on small files made here, plain about broken ones, and unable to execute anything."""

from __future__ import annotations

import collections
import gzip
import io
import os
import pickle
import pickletools
import struct
import tarfile

import numpy as np
import pytest
import torch

from heedful import data
from heedful.data.formats import cifar, idx, isbi, planetoid, tar, text

# idx


def packed(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_idx(seed):
    draw = np.random.RandomState(seed)
    for shape in [(3,), (2, 4, 5), (0, 28, 28), (1, 1)]:
        array = draw.randint(256, size=shape).astype(np.uint8)
        for packing in (bytes, gzip.compress):
            assert np.array_equal(idx.read(packing(packed(array))), array)


@pytest.mark.parametrize(
    "broken, words",
    [
        (b"", "not an idx file"),
        (b"\x89PNG", "89 50 4e 47"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "not an idx file of bytes"),
        (packed(np.zeros((2, 3), np.uint8))[:7], "ends within its header"),
        (packed(np.zeros((2, 3), np.uint8))[:-1], "has 5 entries, its header says 2×3"),
        (packed(np.zeros((2, 3), np.uint8)) + b"!", "has 7 entries"),
        (gzip.compress(packed(np.zeros((2, 3), np.uint8)), mtime=0)[:-4], "cannot be unpacked"),
        (gzip.compress(packed(np.zeros((2, 3), np.uint8)), mtime=0)[:12] + b"x" * 20, "cannot be unpacked"),
        (bytes([0, 0, 8, 4]) + b"\xff" * 16, "has 0 entries"),
    ],
)
def test_broken_idx(broken, words):
    with pytest.raises(ValueError, match=words) as caught:
        idx.read(broken, "the-file.gz")
    assert str(caught.value).startswith("the-file.gz: ")


# Pickles


class Evil:
    """Unpickled by pickle itself, this makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_malicious_pickle_is_refused(tmp_path):
    trap = tmp_path / "executed"
    pickle.loads(pickle.dumps(Evil(trap)))
    assert trap.is_dir()  # so it works, where it is let
    trap.rmdir()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for wrapped in (Evil(trap), [1, {2: Evil(trap)}], collections.defaultdict(list, a=Evil(trap))):
            with pytest.raises(
                ValueError, match=r"the-file: cannot be read: it asks for .*, which is not allowed"
            ):
                planetoid.unpickle(pickle.dumps(wrapped, protocol), "the-file")
    assert not trap.exists()


@pytest.mark.parametrize(
    "module, name",
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("__builtin__", "eval"),
        ("numpy", "load"),
        ("numpy", "ndarray.tofile"),  # protocol 4 follows dots
        ("numpy.core.multiarray", "fromfile"),
        ("numpy", "core.multiarray._reconstruct"),
        ("collections", "OrderedDict"),
        ("heedful.data.formats.planetoid", "Matrix"),
        ("scipy.sparse._csr", "csr_matrix"),
    ],
)
@pytest.mark.parametrize("opcode", ["GLOBAL", "STACK_GLOBAL", "INST", "EXT"])
def test_only_six_names(module, name, opcode):
    if opcode == "GLOBAL":
        code = f"c{module}\n{name}\n.".encode()
    elif opcode == "INST":
        code = f"(i{module}\n{name}\n.".encode()
    elif opcode == "STACK_GLOBAL":
        short = [b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)]
        code = b"\x80\x04" + b"".join(short) + b"\x93."
    else:
        import copyreg

        copyreg.add_extension(module, name, 200)
        try:
            with pytest.raises(ValueError, match="not allowed"):
                planetoid.unpickle(b"\x80\x02\x82" + bytes([200]) + b".")
        finally:
            copyreg.remove_extension(module, name, 200)
        return
    with pytest.raises(ValueError, match=f"it asks for {module}.{name}, which is not allowed"):
        planetoid.unpickle(code)


def test_allowed_names_cannot_be_tampered_with():
    """BUILD sets attributes: not on what we allow."""
    for module, name in planetoid.ALLOWED:
        code = f"c{module}\n{name}\n}}S'evil'\nI1\nsb.".encode()
        with pytest.raises(ValueError, match="cannot be read"):
            planetoid.unpickle(code)
        assert not hasattr(planetoid.ALLOWED[module, name], "evil")


@pytest.mark.parametrize(
    "broken", [b"", b".", b"garbage", b"\x80\x02", b"\x80\x02K\x01", b"\x80\xff.", b"(lp0\n"]
)
def test_broken_pickles(broken):
    with pytest.raises(ValueError, match="the-file: cannot be read"):
        planetoid.unpickle(broken, "the-file")


def test_cut_pickles():
    good = pickle.dumps({1: [2, 3], 4: collections.defaultdict(None)}, 2)
    assert planetoid.unpickle(good) == {1: [2, 3], 4: {}}
    for end in range(len(good)):
        with pytest.raises(ValueError, match="the-file: cannot be read"):
            planetoid.unpickle(good[:end], "the-file")


def csr(**changes):
    """A pickle as Python 2 and scipy wrote it, of [[0, 1, 0], [2, 0, 3]]."""
    import scipy.sparse

    matrix = scipy.sparse.csr_matrix(np.array([[0, 1, 0], [2, 0, 3]], np.float32))
    state = {"_shape": (2, 3), "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    found = planetoid.Matrix()
    found.__setstate__(state | changes)
    return found


def test_matrices():
    assert csr().dense().tolist() == [[0, 1, 0], [2, 0, 3]]
    for changes, words in [
        ({"indices": np.array([0, 9, 1])}, "a column is outside"),
        ({"indices": np.array([0, -1, 1])}, "a column is outside"),
        ({"indptr": np.array([0, 1])}, "do not fit the shape"),
        ({"indptr": np.array([0, 4, 3])}, "do not fit the shape"),
        ({"indptr": np.array([0, 1, 2])}, "as many entries"),
        ({"data": np.ones(2)}, "as many entries"),
        ({"_shape": (3, 3)}, "do not fit the shape"),
    ]:
        with pytest.raises(ValueError, match=words):
            csr(**changes).dense()


def test_the_real_pickles_name_no_more_than_is_allowed(real):
    real("cora"), real("citeseer"), real("pubmed")
    for place in [place for name in ("cora", "citeseer", "pubmed") for place in data.where(name)]:
        if place.at.endswith(".index"):
            continue
        with open(place.at, "rb") as file:
            asked = {value for opcode, value, _ in pickletools.genops(file) if opcode.name == "GLOBAL"}
        assert {tuple(name.split(" ")) for name in asked} <= set(planetoid.ALLOWED)


# A small Planetoid, to see that rows go where test.index says


def small_planetoid(gap: bool) -> dict[str, bytes]:
    """Six nodes, 0 and 1 labelled and three tested, not in order; with a gap seven, of which 4 has no row."""
    test = [6, 3, 5] if gap else [5, 3, 4]
    rows = {node: [float(node), 1.0] for node in range(7)}
    hot = {node: np.eye(2, dtype=np.int32)[node % 2] for node in range(7)}

    def matrix(nodes) -> bytes:
        import scipy.sparse

        return scipy.sparse.csr_matrix(np.array([rows[node] for node in nodes], np.float32))

    parts = {
        "x": matrix([0, 1]),
        "allx": matrix([0, 1, 2]),
        "tx": matrix(test),
        "y": np.array([hot[0], hot[1]]),
        "ally": np.array([hot[0], hot[1], hot[2]]),
        "ty": np.array([hot[node] for node in test]),
        "graph": collections.defaultdict(
            list, {0: [1, 1, 2], 1: [0], 2: [2], 3: [0], 5: [6] if gap else [4]}
        ),
    }
    out = {f"planetoid/ind.cora.{name}": as_python_2(part) for name, part in parts.items()}
    return out | {"planetoid/ind.cora.test.index": "".join(f"{node}\n" for node in test).encode()}


def as_python_2(part) -> bytes:
    code = pickle.dumps(part, 2)
    for now, then in [
        (b"numpy._core.multiarray\n", b"numpy.core.multiarray\n"),
        (b"scipy.sparse._csr\n", b"scipy.sparse.csr\n"),
    ]:
        code = code.replace(now, then)
    return code


@pytest.mark.parametrize("gap", [False, True])
def test_small_planetoid(gap, monkeypatch):
    # Python 3 writes bytes in protocol 2 as a call of _codecs.encode, which Python 2 did not need.
    import _codecs

    monkeypatch.setitem(planetoid.ALLOWED, ("_codecs", "encode"), _codecs.encode)
    found = planetoid.read(small_planetoid(gap), "cora")
    nodes = 7 if gap else 6
    assert found.graph.nodes == nodes and found.test.tolist() == ([3, 5, 6] if gap else [3, 4, 5])
    for node in range(nodes):
        alone = gap and node == 4
        assert found.features[node].tolist() == ([0, 0] if alone else [node, 1])
        assert found.labels[node] == (-1 if alone else node % 2)
    ends = {tuple(edge) for edge in found.graph.to_edge_index().T.tolist()}
    other = (5, 6) if gap else (5, 4)
    assert ends == {(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0), other, other[::-1]}
    assert found.graph.edges == 8  # the loop 2–2 and the second 0–1 are gone
    assert found.train.tolist() == [0, 1]


# tar


def tarred(members: dict[str, bytes], packing: str = "w:gz", **links: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=packing) as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
        for name, to in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, to
            archive.addfile(info)
    return out.getvalue()


def test_tar_is_read_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for packing in ("w", "w:gz"):
        whole = tarred({"a/b": b"one", "../escape": b"no", "/absolute": b"no", "c": b""}, packing)
        assert tar.members(whole, ["a/b", "c"]) == {"a/b": b"one", "c": b""}
    assert list(tmp_path.rglob("*")) == [] and not (tmp_path.parent / "escape").exists()


def test_links_in_a_tar_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    whole = tarred({"plain": b"x"}, link=str(tmp_path / "secret"), inner="plain")
    for name in ("link", "inner", "absent"):
        with pytest.raises(ValueError, match=f"the-file: has no file {name}"):
            tar.members(whole, [name], "the-file")


@pytest.mark.parametrize("cut", [0, 3, 40, 2500])
def test_broken_tar(seed, cut):
    body = np.random.RandomState(seed).bytes(5000)  # does not compress, so that the cut is within
    for packing in ("w", "w:gz"):
        with pytest.raises(ValueError, match="the-file: "):
            tar.members(tarred({"a": body}, packing)[:cut], ["a"], "the-file")


# CIFAR


def records(draw, count: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    labels = draw.randint(10, size=count).astype(np.uint8)
    images = draw.randint(256, size=(count, 3, 32, 32)).astype(np.uint8)
    return np.concatenate([labels[:, None], images.reshape(count, -1)], axis=1).tobytes(), images, labels


def test_the_whole_of_cifar(seed):
    draw = np.random.RandomState(seed)
    batches = {path: records(draw, 4) for path in [*cifar.TRAIN, cifar.TEST]}
    found = cifar.whole({"x.tar.gz": tarred({path: batch[0] for path, batch in batches.items()})})
    assert np.array_equal(found.train.inputs, np.concatenate([batches[path][1] for path in cifar.TRAIN]))
    assert np.array_equal(found.train.labels, np.concatenate([batches[path][2] for path in cifar.TRAIN]))
    assert np.array_equal(found.test.inputs, batches[cifar.TEST][1])
    part = cifar.part({"x.tar.gz": tarred({path: batch[0] for path, batch in batches.items()})})
    assert len(part.train) == 20 and part.name == "cifar10-10k"  # of none are there a thousand
    with pytest.raises(ValueError, match="not a multiple of 3073"):
        cifar.whole({"x.tar.gz": tarred({path: batch[0][:-1] for path, batch in batches.items()})})
    with pytest.raises(ValueError, match=r"has no file cifar-10-batches-bin/test_batch.bin"):
        cifar.whole({"x.tar.gz": tarred({path: batches[path][0] for path in cifar.TRAIN})})


def test_differences_are_undone(seed):
    """Against coding written the other way round."""
    image = np.random.RandomState(seed).randint(256, size=(5, 3, 32, 32)).astype(np.uint8)
    red, green, blue = image[:, 0], image[:, 1], image[:, 2]
    planes = np.stack([green, red - green, blue - green], axis=1)
    across = np.diff(planes, axis=3, prepend=np.zeros((5, 3, 32, 1), np.uint8))
    residual = np.diff(across, axis=2, prepend=np.zeros((5, 3, 1, 32), np.uint8))
    assert np.array_equal(cifar.undo_differences(residual), image)


def test_pickled_arrays_are_refused(tmp_path):
    out = io.BytesIO()
    np.savez(out, x=np.array([Evil(tmp_path / "executed")], dtype=object))
    with pytest.raises(ValueError, match=r"the-file: cannot be read: .*allow_pickle=False"):
        cifar.arrays_of(out.getvalue(), "the-file")
    assert not (tmp_path / "executed").exists()
    for broken in (b"", b"PK\x03\x04 and nothing", b"garbage"):
        with pytest.raises(ValueError, match="the-file: cannot be read"):
            cifar.arrays_of(broken, "the-file")


# PNG


def png(array: np.ndarray, **options) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(array).save(out, options.pop("format", "PNG"), **options)
    return out.getvalue()


def test_png(seed):
    picture = np.random.RandomState(seed).randint(256, size=(7, 5)).astype(np.uint8)
    assert np.array_equal(isbi.png(png(picture)), picture)
    colour = np.stack([picture] * 3, axis=-1)
    for broken, words in [
        (png(picture)[:60], ""),
        (b"", "cannot identify"),
        (png(colour), "expected 8-bit grey, mode 'L', got 'RGB'"),
        (png(picture, format="BMP"), "cannot identify"),
    ]:
        with pytest.raises(ValueError, match=f"the-file: cannot be read.*{words}"):
            isbi.png(broken, "the-file")


# Text


def test_text(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_text("Grüße 🜁\n", encoding="utf-8")
    found = data.text_file(path)
    assert found.text == "Grüße 🜁\n" and found.name == "poem.txt" and found.decode(found.codes) == found.text
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"poem.txt: not UTF-8"):
        data.text_file(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"poem.txt: is empty"):
        data.text_file(path)
    with pytest.raises(FileNotFoundError):
        data.text_file(tmp_path / "none.txt")
    assert text.shakespeare({"x": b"To be\n"}).text == text.shakespeare({"x": b"To be"}).text == "To be"


def test_first_of_each_keeps_the_order(seed):
    labels = torch.randint(4, (200,))
    found = cifar.first_of_each(data.Examples(torch.arange(200), labels), 10)
    expected = [i for i in range(200) if (labels[:i] == labels[i]).sum() < 10]
    assert found.inputs.tolist() == expected
