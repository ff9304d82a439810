"""A model's file: whole or not there, read back exactly, and refused with a reason when it is not one."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import heedful
from heedful.attention import neighbors as patterns
from heedful.models import Model, load
from heedful.phrases import as_neighbors, as_similarity


class Tiny(Model):
    def __init__(
        self,
        width: int,
        *,
        depth: int = 2,
        similarity="softmax",
        neighbors="everyone",
        sizes=(1, 2),
        name=None,
    ):
        super().__init__()
        self.similarity, self.neighbors = as_similarity(similarity), as_neighbors(neighbors)
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("unsaved", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.layers(x) * self.unsaved.sum()


class Other(Model):
    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)


class Wider(Tiny):
    """Takes what Tiny takes, by any name."""

    def __init__(self, width: int, **options):
        super().__init__(2 * width, **options)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(file, seed):
    model = Tiny(4)
    model.save(file)
    return model


def rewrite(file, weights=None, **changes):
    """The same file with another header, or other weights."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        header = json.loads(opened.metadata()["heedful"])
    save_file(
        load_file(file) if weights is None else weights, file, {"heedful": json.dumps({**header, **changes})}
    )


class TestRoundTrip:
    def test_weights_buffers_and_configuration(self, file, seed):
        model = Tiny(4, depth=3, sizes=[3, 4], name="it")
        model.seen += 7
        assert model.save(file) == file
        again = Tiny.load(file)
        assert type(again) is Tiny
        assert again.config == model.config
        assert again.config["depth"] == 3
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name
        assert str(again) == str(model)
        assert load(file).config == Model.load(str(file)).config == model.config

    def test_defaults_are_remembered(self, file, seed):
        assert Tiny(4).config == {
            "width": 4,
            "depth": 2,
            "similarity": "softmax",
            "neighbors": "everyone",
            "sizes": (1, 2),
            "name": None,
        }
        assert Tiny(width=4).config == Tiny(4).config

    def test_options_of_any_name(self, file, seed):
        model = Wider(2, depth=1)
        assert model.config == {"width": 2, "depth": 1}
        model.save(file)
        assert load(file).layers[0].weight.shape == (4, 4)

    def test_what_was_given_is_kept_as_it_was(self):
        sizes = [1, 2]
        model = Tiny(4, sizes=sizes)
        sizes.append(3)
        assert model.config["sizes"] == [1, 2]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_dtypes(self, file, dtype, seed):
        model = Tiny(4).to(dtype)
        model.save(file)
        again = Tiny.load(file)
        assert {value.dtype for value in again.parameters()} == {dtype}
        assert (again.seen.dtype, again.unsaved.dtype) == (torch.int64, dtype)
        x = torch.randn(2, 4).to(dtype)
        assert torch.equal(again(x), model(x))

    def test_mixed_dtypes(self, file, seed):
        model = Tiny(4)
        model.layers[0].bfloat16()
        model.save(file)
        again = Tiny.load(file)
        assert again.layers[0].weight.dtype == torch.bfloat16
        assert again.layers[1].weight.dtype == torch.float32

    def test_shared_and_transposed_weights(self, file, seed):
        model = Tiny(4)
        model.layers[1].weight = model.layers[0].weight
        model.layers[0].bias = nn.Parameter(model.layers[0].weight.detach().t()[0])
        model.layers[0].weight.data = model.layers[0].weight.data.t()
        assert not model.layers[0].weight.is_contiguous()
        model.save(file)
        again = Tiny.load(file)
        assert torch.equal(again.layers[0].weight, model.layers[0].weight)
        assert torch.equal(again.layers[1].weight, model.layers[1].weight)

    def test_loading_draws_nothing(self, saved, file):
        before = torch.get_rng_state()
        load(file)
        assert torch.equal(torch.get_rng_state(), before)

    def test_training_goes_on(self, saved, file):
        again = load(file)
        again(torch.randn(3, 4)).sum().backward()
        assert all(parameter.grad is not None for parameter in again.parameters())

    def test_a_subclass_is_one_of_its_kind(self, file, seed):
        Wider(2).save(file)
        assert type(Tiny.load(file)) is Wider

    def test_a_class_that_moved(self, saved, file):
        rewrite(file, **{"class": "somewhere.else.Tiny"})
        assert type(Tiny.load(file)) is Tiny
        with pytest.raises(ValueError, match=r"holds a somewhere\.else\.Tiny, which is not known here"):
            load(file)

    def test_one_file_of_the_library(self, file, seed):
        """Ours go by their bare name, so that no class of a user's can take it."""

        class GPT(Model):
            def __init__(self):
                super().__init__()

        assert Model.kinds["GPT"] is heedful.models.GPT
        assert Model.kinds[f"{__name__}.GPT"] is GPT


class TestChoices:
    @pytest.mark.parametrize(
        "similarity",
        [
            heedful.Softmax(),
            heedful.Softmax(scale=0.1234567890123),
            heedful.Polynomial(3, 1 / 3),
            heedful.EluKernel(),
            heedful.Additive(1e-7 / 3),
            heedful.RandomFeatures(64),
            "polynomial(degree=3)",
        ],
        ids=str,
    )
    def test_similarities(self, file, similarity, seed):
        model = Tiny(4, similarity=similarity)
        model.save(file)
        again = load(file)
        assert again.similarity.signature == model.similarity.signature
        assert isinstance(again.config["similarity"], str)

    @pytest.mark.parametrize(
        "neighbors",
        [
            heedful.Causal(),
            heedful.Causal() & heedful.Window(3),
            (heedful.Causal() | heedful.Window(2)) & heedful.Global([0, 2]),
            heedful.Segments([2, 3]),
            "causal & window(256)",
        ],
        ids=str,
    )
    def test_neighbors(self, file, neighbors, seed):
        model = Tiny(4, neighbors=neighbors)
        model.save(file)
        assert load(file).neighbors == model.neighbors

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            ("similarity", heedful.FeatureMap(torch.exp)),
            ("similarity", heedful.ScoreFunction(torch.cdist)),
            ("similarity", heedful.Softmax(torch.ones(2))),
            ("similarity", heedful.RandomFeatures(64, seed=3)),  # its text does not tell the seed
            ("neighbors", heedful.Mask(torch.ones(2, 2, dtype=torch.bool))),
            ("neighbors", heedful.Segments([1] * 100)),
            ("neighbors", heedful.Graph.from_edges([0], [1], nodes=2)),
            ("name", object()),
            ("name", torch.ones(1)),
        ],
        ids=lambda value: str(value)[:15],  # without the address of an object
    )
    def test_what_cannot_be_written_down(self, file, argument, value, seed):
        Tiny(4).save(file)
        before = file.read_bytes()
        model = Tiny(4, **{argument: value})
        with pytest.raises(TypeError, match=rf"Tiny\.save: {argument}=.* cannot be written down"):
            model.save(file)
        assert file.read_bytes() == before
        assert os.listdir(file.parent) == [file.name]

    def test_every_pattern_is_either_read_back_or_refused(self, file):
        for thing in (
            heedful.Everyone(),
            heedful.Window(1),
            heedful.Global(range(9)),
            heedful.Segments([1] * 9),
        ):
            try:
                Tiny(4, neighbors=thing).save(file)
            except TypeError:
                continue
            assert load(file).neighbors == thing
        assert isinstance(load(file).neighbors, patterns.Neighbors)


class TestRefuses:
    def test_a_truncated_file(self, saved, file):
        whole = file.read_bytes()
        for cut in (0, 1, 7, 8, 9, 40, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            file.write_bytes(whole[:cut])
            with pytest.raises(ValueError, match="truncated, or not a safetensors file"):
                load(file)
        file.write_bytes(whole)
        load(file)

    def test_a_file_with_more_in_it(self, saved, file):
        file.write_bytes(file.read_bytes() + b"more")
        with pytest.raises(ValueError, match="truncated, or not"):
            load(file)

    def test_something_else(self, file, seed):
        file.write_text("a poem")
        with pytest.raises(ValueError, match="not a safetensors file"):
            load(file)
        torch.save({"weights": torch.ones(3)}, file)
        with pytest.raises(ValueError, match="not a safetensors file"):
            load(file)

    def test_weights_of_somebody_else(self, file):
        for metadata in (
            None,
            {},
            {"format": "pt"},
            {"heedful": "not json"},
            {"heedful": "3"},
            {"heedful": "{}"},
        ):
            save_file({"weight": torch.ones(3)}, file, metadata)
            with pytest.raises(ValueError, match="not a model saved by heedful"):
                load(file)

    def test_a_damaged_header(self, saved, file):
        rewrite(file, version="new")
        with pytest.raises(ValueError, match="header is damaged"):
            load(file)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            load(tmp_path / "nothing")
        with pytest.raises(FileNotFoundError, match="There is no file"):
            load(tmp_path)

    def test_another_class(self, saved, file):
        with pytest.raises(ValueError, match=r"holds a .*Tiny, not a Other; use Tiny\.load"):
            Other.load(file)
        with pytest.raises(ValueError, match="not a Wider"):
            Wider.load(file)

    def test_a_class_nobody_knows(self, saved, file):
        rewrite(file, **{"class": "GPTT"})
        with pytest.raises(ValueError, match=r"holds a GPTT, which is not known here\. Update heedful"):
            load(file)

    def test_another_version(self, saved, file, monkeypatch):
        monkeypatch.setattr(Tiny, "version", 2)
        with pytest.raises(ValueError, match="holds version 1 of Tiny; this heedful reads version 2"):
            load(file)

    def test_another_format(self, saved, file):
        rewrite(file, format=2)
        with pytest.raises(ValueError, match="of format 2; this heedful reads format 1"):
            load(file)
        save_file({}, file, {"heedful": json.dumps({"format": 9, "kind": "laid out otherwise"})})
        with pytest.raises(ValueError, match="of format 9"):
            load(file)

    def test_a_configuration_that_builds_nothing(self, saved, file):
        rewrite(file, config={"breadth": 4})
        with pytest.raises(ValueError, match=r"no Tiny can be built from its configuration.*breadth"):
            load(file)
        rewrite(file, config={"width": 4, "similarity": "softmaks"})
        with pytest.raises(ValueError, match=r"no Tiny can be built.*softmaks"):
            load(file)

    def test_weights_that_do_not_fit(self, saved, file):
        weights = load_file(file)
        rewrite(file, {**weights, "layers.0.weight": torch.ones(4, 5)})
        with pytest.raises(
            ValueError, match=r"layers\.0\.weight has shape \(4, 5\), the Tiny takes \(4, 4\)"
        ):
            load(file)
        rewrite(file, {name: value for name, value in weights.items() if name != "layers.1.bias"})
        with pytest.raises(ValueError, match=r"it lacks layers\.1\.bias"):
            load(file)
        rewrite(file, {**weights, "layers.9.bias": torch.ones(1), "layers.9.weight": torch.ones(1)})
        with pytest.raises(ValueError, match=r"it has layers\.9\.bias and 1 more besides"):
            load(file)

    def test_nothing_is_executed(self, saved, file):
        rewrite(file, config={"width": 4, "similarity": "__import__('os').system('true')"})
        with pytest.raises(ValueError, match="no Tiny can be built"):
            load(file)


class TestWriting:
    @pytest.mark.parametrize("moment", ["fsync", "replace"])
    def test_an_interrupted_write_leaves_the_old_file(self, saved, file, moment, monkeypatch):
        before = file.read_bytes()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            Tiny(4).save(file)
        monkeypatch.undo()
        assert file.read_bytes() == before
        assert os.listdir(file.parent) == [file.name]
        assert torch.equal(load(file).layers[0].weight, saved.layers[0].weight)

    def test_a_full_disk(self, saved, file, monkeypatch):
        before = file.read_bytes()

        class Full:
            def __init__(self, handle, _):
                self.handle = handle

            def __enter__(self):
                return self

            def __exit__(self, *_):
                os.close(self.handle)

            def write(self, content):
                os.write(self.handle, content[: len(content) // 2])
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fdopen", Full)
        with pytest.raises(OSError, match="No space left"):
            saved.save(file)
        monkeypatch.undo()
        assert file.read_bytes() == before
        assert os.listdir(file.parent) == [file.name]

    def test_a_reader_never_sees_half_a_file(self, file, seed):
        models = [Tiny(64), Tiny(64, depth=4)]
        models[0].save(file)
        wrong, done = [], threading.Event()

        def read():
            while not done.is_set():
                try:
                    load(file)
                except Exception as error:
                    wrong.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for turn in range(20):
            models[turn % 2].save(file)
        done.set()
        reader.join()
        assert not wrong

    def test_permissions_are_the_usual_ones(self, saved, file):
        plain = file.with_name("plain")
        plain.touch()
        assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)

    def test_a_link_goes_on_pointing(self, saved, file):
        link = file.with_name("link")
        link.symlink_to(file.name)
        model = Tiny(4, depth=1)
        model.save(link)
        assert link.is_symlink()
        assert load(file).config["depth"] == 1

    def test_no_folder(self, tmp_path, seed):
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            Tiny(4).save(tmp_path / "missing" / "model")
        with pytest.raises(FileNotFoundError, match="is a folder"):
            Tiny(4).save(tmp_path)


class TestSays:
    def test_repr(self, seed):
        text = str(Tiny(4, name="it"))
        assert text.startswith("Tiny(width=4, depth=2, ")
        assert "2 × Linear" in text
        assert "40 parameters" in text

    def test_shared_weights_count_once(self, seed):
        model = Tiny(4)
        model.layers[1].weight = model.layers[0].weight
        assert model.parameter_count == 16 + 4 + 4

    def test_printing_while_being_built(self):
        class Printing(Model):
            def __init__(self):
                super().__init__()
                self.text = str(self)

        assert Printing().text.startswith("Printing()")

    def test_wrong_arguments_name_the_class(self):
        with pytest.raises(
            TypeError, match=r"Tiny\.__init__\(\) missing 1 required positional argument: 'width'"
        ):
            Tiny()
