"""ViT: equal to transformers' with the same weights; sizes, positions, attention maps, other image sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful.models import ViT, load
from heedful.models.vit import GridPositions


def small(**options):
    return ViT(16, 4, 3, 5, **{"layers": 2, "heads": 2, "dim": 16, **options})


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def scattered(model):
    """All weights away from where they begin, so that none of them hides (norms, biases, class token)."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    ("size", "count"),
    [("tiny", 5_717_416), ("small", 22_050_664), ("base", 86_567_656), ("large", 304_326_632)],
)
def test_sizes_at_16_of_224(size, count):
    with torch.device("meta"):
        assert ViT.of_size(size).parameter_count == count


def test_changes_to_a_size():
    model = ViT.of_size("tiny", 32, 4, 1, 10, layers=2, pool="mean")
    assert model.config["layers"] == 2
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 10)


class TestAgainstTransformers:
    """ViTForImageClassification, its weights copied."""

    @pytest.fixture
    def pair(self, seed):
        transformers = pytest.importorskip("transformers")
        config = transformers.ViTConfig(
            image_size=16,
            patch_size=4,
            num_channels=3,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            num_labels=5,
            hidden_act="gelu",
        )
        theirs = transformers.ViTForImageClassification._from_config(config, attn_implementation="eager")
        theirs = scattered(theirs).eval()
        ours = small(eps=config.layer_norm_eps)
        ours.load_state_dict(self.translated(theirs))
        return theirs.double(), ours.double()

    @staticmethod
    def translated(theirs):
        vit = theirs.vit
        found = {
            "token": vit.embeddings.cls_token[0, 0],
            "positions.weight": vit.embeddings.position_embeddings[0],
            "patches.project.weight": vit.embeddings.patch_embeddings.projection.weight.flatten(1),
            "patches.project.bias": vit.embeddings.patch_embeddings.projection.bias,
            "norm.weight": vit.layernorm.weight,
            "norm.bias": vit.layernorm.bias,
            "head.weight": theirs.classifier.weight,
            "head.bias": theirs.classifier.bias,
        }
        names = {
            "attention_norm": "layernorm_before",
            "feed_forward_norm": "layernorm_after",
            "attention.output": "attention.o_proj",
            "feed_forward.input": "mlp.fc1",
            "feed_forward.output": "mlp.fc2",
        }
        for n, layer in enumerate(vit.layers):
            for kind in ("weight", "bias"):
                parts = [getattr(layer.get_submodule(f"attention.{x}_proj"), kind) for x in "qkv"]
                found[f"blocks.{n}.attention.query_key_value.{kind}"] = torch.cat(parts)
                for our, their in names.items():
                    found[f"blocks.{n}.{our}.{kind}"] = getattr(layer.get_submodule(their), kind)
        return {name: value.detach() for name, value in found.items()}

    def test_logits_and_gradients(self, pair):
        theirs, ours = pair
        images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
        a, b = theirs(images).logits, ours(images)
        close(b, a, 1e-6)  # transformers' softmax is float32
        a.square().sum().backward()
        b.square().sum().backward()
        wanted = self.translated(_Gradients(theirs))
        for name, parameter in ours.named_parameters():
            scale = wanted[name].abs().max()
            close(parameter.grad / scale, wanted[name] / scale, 1e-5)

    def test_attention_maps(self, pair):
        theirs, ours = pair
        images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
        with torch.no_grad():
            close(
                ours.attention_maps(images),
                torch.stack(theirs(images, output_attentions=True).attentions),
                1e-6,
            )

    def test_another_size(self, pair):
        theirs, ours = pair
        images = torch.randn(2, 3, 24, 32, dtype=torch.float64)
        with torch.no_grad():
            expected = theirs(images, interpolate_pos_encoding=True).logits
            close(ours.resized((24, 32))(images), expected, 1e-5)


class _Gradients:
    """A module seen through its gradients."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        found = getattr(self.module, name)
        if isinstance(found, nn.Parameter):
            return found.grad
        return _Gradients(found) if isinstance(found, nn.Module) else found

    def get_submodule(self, name):
        return _Gradients(self.module.get_submodule(name))

    def __iter__(self):
        return map(_Gradients, self.module)


class TestForms:
    def test_class_token_and_mean(self, seed):
        images = torch.randn(2, 3, 16, 16)
        for pool, tokens in (("class", 17), ("mean", 16)):
            model = small(pool=pool).eval()
            encoded = model.encode(images)
            assert encoded.shape == (2, tokens, 16)
            pooled = encoded[:, 0] if pool == "class" else encoded.mean(1)
            assert torch.equal(model.features(images), pooled)
            assert torch.equal(model(images), model.head(pooled))

    def test_without_classes_it_returns_features(self, seed):
        model = ViT(16, 4, 3, None, layers=1, heads=2, dim=16)
        images = torch.randn(2, 3, 16, 16)
        assert torch.equal(model(images), model.features(images))

    def test_one_image_without_a_batch(self, seed):
        model = small().eval()
        images = torch.randn(2, 3, 16, 16)
        close(model(images[0]), model(images)[0])
        close(model(images.view(2, 1, 3, 16, 16))[:, 0], model(images))

    @pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
    def test_only_positions_tell_where_a_patch_is(self, position, seed):
        """Patches in another order: the same to a ViT without positions, not to one with them."""
        model = scattered(small(position=position).double()).eval()
        images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
        moved = torch.cat([images[..., 8:, :], images[..., :8, :]], -2)
        same = torch.allclose(model(moved), model(images), rtol=1e-9)
        assert same == (position == "none")

    def test_sinusoidal_positions_are_of_rows_and_columns(self):
        positions = GridPositions("sinusoidal", (3, 5), 8, extra=1)
        table = positions.table(torch.zeros(8, dtype=torch.float64))
        assert table.shape == (16, 8)
        assert (table[0] == 0).all()
        grid = table[1:].view(3, 5, 8)
        assert torch.equal(grid[:, :1, :4].expand(-1, 5, -1), grid[..., :4])
        assert torch.equal(grid[:1, :, 4:].expand(3, -1, -1), grid[..., 4:])
        angle = torch.arange(5, dtype=torch.float64)
        close(grid[0, :, 4], angle.sin(), 1e-12)
        close(grid[0, :, 7], (angle / 100).cos(), 1e-12)
        assert not list(positions.parameters())

    def test_activation(self, seed):
        images = torch.randn(2, 3, 16, 16)
        gelu, relu = small(activation="gelu").eval(), small(activation="relu").eval()
        relu.load_state_dict(gelu.state_dict())
        assert not torch.allclose(gelu(images), relu(images))

    def test_visible_patches_only(self, seed):
        """What is not visible is not read: not even NaN gets through, nor into gradients."""
        for options in ({}, {"pool": "mean", "position": "sinusoidal"}):
            model = scattered(small(**options)).eval()
            images = torch.randn(2, 3, 16, 16)
            visible = torch.tensor([[0, 5, 6], [15, 3, 9]])
            a = model.encode(images, visible)
            assert a.shape == (2, 3 + model.extra, 16)
            shown = torch.zeros(2, 16, dtype=torch.bool).scatter(1, visible, True)
            shown = shown.view(2, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
            b = model.encode(images.masked_fill(~shown, torch.nan), visible)
            assert torch.equal(a, b)
            b.sum().backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())

    def test_all_visible_is_all(self, seed):
        model = scattered(small()).eval()
        images = torch.randn(2, 3, 16, 16)
        close(model.encode(images, torch.arange(16).expand(2, -1)), model.encode(images))

    def test_dropout_in_training_only(self, seed):
        model = small(dropout=0.5)
        images = torch.randn(2, 3, 16, 16)
        assert not torch.equal(model(images), model(images))
        model.eval()
        assert torch.equal(model(images), model(images))


class TestAttentionMaps:
    def test_rows_are_shares(self, seed):
        for options in (
            {},
            {"similarity": "polynomial(degree=2)"},
            {"pool": "mean", "neighbors": "window(3)"},
        ):
            model = small(**options).eval()
            maps = model.attention_maps(torch.randn(3, 3, 16, 16))
            tokens = 16 + model.extra
            assert maps.shape == (2, 3, 2, tokens, tokens)
            close(maps.sum(-1), torch.ones(2, 3, 2, tokens))
            assert (maps >= 0).all()

    def test_they_are_what_the_model_uses(self, seed):
        """The last layer's map times its values is what its attention gives."""
        model = scattered(small(layers=1)).double().eval()
        images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
        block = model.blocks[0]
        z = block.attention_norm(model.embed(images))
        _, _, value = block.attention.project(z)
        out = model.attention_maps(images)[0] @ value
        close(block.attention.output(out.transpose(1, 2).flatten(2)), block.attention(z), 1e-10)

    def test_windows_show(self, seed):
        model = small(pool="mean", neighbors="window(2)").eval()
        maps = model.attention_maps(torch.randn(1, 3, 16, 16))
        apart = (torch.arange(16)[:, None] - torch.arange(16)).abs()
        assert (maps[..., apart > 2] == 0).all()
        assert (maps[..., apart <= 2] > 0).all()


class TestResized:
    def test_the_same_size_is_the_same(self, seed):
        model = scattered(small()).eval()
        images = torch.randn(2, 3, 16, 16)
        twin = model.resized(16)
        close(twin(images), model(images), 1e-6)
        assert twin is not model
        assert not twin.training

    def test_positions_stretch_and_the_class_token_stays(self, seed):
        model = small()
        with torch.no_grad():
            model.positions.weight[1:] = torch.arange(4.0).repeat(4)[:, None]  # the column
        weight = model.resized((24, 32)).positions.weight
        assert torch.equal(weight[0], model.positions.weight[0])
        grid = weight[1:].view(6, 8, 16)
        close(grid, grid[:1].expand_as(grid), 1e-6)
        assert (grid[:, 2:6].diff(dim=1) > 0.3).all()
        close(grid.mean(1), torch.full((6, 16), 1.5))

    def test_sinusoidal_positions_go_on(self, seed):
        model = small(position="sinusoidal")
        twin = model.resized((16, 24))
        a, b = (m.positions.table(torch.zeros(16))[1:].view(4, -1, 16) for m in (model, twin))
        assert torch.equal(a, b[:, :4])

    def test_it_can_be_saved_and_draws_nothing(self, tmp_path, seed):
        model = small()
        before = torch.get_rng_state()
        twin = model.resized((24, 8)).double()
        assert torch.equal(torch.get_rng_state(), before)
        twin.save(tmp_path / "vit")
        images = torch.randn(2, 3, 24, 8, dtype=torch.float64)
        assert torch.equal(load(tmp_path / "vit")(images), twin(images))

    def test_dtype(self, seed):
        assert small().double().resized(32).positions.weight.dtype == torch.float64
        assert small().bfloat16().resized(32).head.weight.dtype == torch.bfloat16


def test_fits_a_few_images(seed):
    """Enough capacity and gradient to learn labels drawn at random by heart."""
    model = ViT(8, 2, 1, 2, layers=2, heads=2, dim=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    images, labels = torch.randn(24, 1, 8, 8), torch.randint(2, (24,))
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert torch.equal(model.eval()(images).argmax(-1), labels)


class TestRefuses:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"pool": "max"}, r"pool='max'\): takes one of 'class', 'mean'"),
            ({"position": "sinusoid"}, "did you mean 'sinusoidal'"),
            ({"activation": "tanh"}, "activation='tanh'"),
            ({"layers": 0}, r"layers=0\): takes a whole number, 1 or more"),
            ({"heads": 3}, "dim=16 does not divide into heads=3"),
            ({"dropout": 1.0}, r"dropout=1\.0"),
            ({"dim": 6, "position": "sinusoidal"}, "multiple of 4"),
        ],
        ids=str,
    )
    def test_options(self, options, said):
        with pytest.raises(ValueError, match=said):
            small(**options)

    def test_patches_that_stick_out(self):
        with pytest.raises(ValueError, match="multiple"):
            ViT(30, 4, 3, 10)

    def test_images_of_another_size(self):
        with pytest.raises(
            ValueError, match=r"got images of shape \(2, 3, 32, 32\).*\(..., 3, 16, 16\).*resized"
        ):
            small()(torch.randn(2, 3, 32, 32))

    def test_sizes_nobody_knows(self):
        with pytest.raises(ValueError, match="size='huge'"):
            ViT.of_size("huge")
