"""The masked autoencoder: what is hidden stays hidden, masks repeat, the loss counts what it says."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from heedful.models import MaskedAutoencoder, ViT, load
from heedful.nn import patchify


def small(**options):
    settings = {"layers": 2, "heads": 2, "dim": 16, "decoder_layers": 1, "decoder_heads": 2, "decoder_dim": 8}
    return MaskedAutoencoder(16, 4, 3, **{**settings, **options})


def pixels(mask):
    """A mask of 4 × 4 patches as one of 16 × 16 pixels."""
    return mask.view(-1, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)


def close(a, b, tolerance=1e-6):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_defaults_are_for_images_of_32(seed):
    model = MaskedAutoencoder()
    predicted, mask = model(torch.rand(2, 3, 32, 32))
    assert predicted.shape == (2, 3, 32, 32)
    assert mask.shape == (2, 64)
    assert (mask.sum(-1) == 48).all()
    encoder, decoder = model.encoder.parameter_count, model.parameter_count - model.encoder.parameter_count
    assert decoder < encoder / 5  # light


class TestHidden:
    @pytest.mark.parametrize("options", [{}, {"normalize": False, "position": "learned"}], ids=str)
    def test_pixels_are_never_seen(self, options, seed):
        """Whatever the hidden pixels are, NaN too, the prediction is the same to the last bit."""
        model = small(**options).eval()
        images = torch.rand(3, 3, 16, 16)
        predicted, mask = model(images, seed=seed)
        for other in (torch.rand_like(images), torch.full_like(images, torch.nan)):
            again, same = model(torch.where(pixels(mask), other, images), seed=seed)
            assert torch.equal(same, mask)
            assert torch.equal(again, predicted)

    def test_visible_pixels_are(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        predicted, mask = model(images, seed=seed)
        other, _ = model(torch.where(pixels(mask), images, 1 - images), mask=mask)
        assert not torch.allclose(other, predicted)

    def test_each_image_fills_in_itself(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        whole, mask = model(images, seed=seed)
        alone, _ = model(images[1:], mask=mask[1:])
        close(alone, whole[1:])

    def test_the_gradient_of_hidden_pixels_is_zero(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16, requires_grad=True)
        predicted, mask = model(images)
        (gradient,) = torch.autograd.grad(predicted.square().sum(), images)
        hidden = pixels(mask).expand_as(gradient)
        assert (gradient[hidden] == 0).all()
        assert (gradient[~hidden] != 0).any()


class TestMasks:
    def test_a_seed_decides(self, seed):
        model = small()
        images = torch.rand(8, 3, 16, 16)
        before = torch.get_rng_state()
        a, b, c = (model(images, seed=n)[1] for n in (seed, seed, seed + 1))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
        assert torch.equal(model(images, seed=torch.tensor(seed))[1], a)
        assert torch.equal(model(images[:3], seed=seed)[1], a[:3])

    def test_training_draws_and_evaluating_repeats(self, seed):
        model = small()
        images = torch.rand(8, 3, 16, 16)
        assert not torch.equal(model(images)[1], model(images)[1])
        torch.manual_seed(seed)
        a = model(images)[1]
        torch.manual_seed(seed)
        assert torch.equal(model(images)[1], a)
        model.eval()
        assert torch.equal(model(images)[1], model(images)[1])
        assert model.loss(images) == model.loss(images)

    def test_all_patches_hide_as_often(self, seed):
        model = small()
        hidden = model._drawn(torch.Size([4000]), seed, "cpu")[0].float().mean(0)
        error = (hidden - 0.75).abs() / (0.75 * 0.25 / 4000) ** 0.5
        assert error.max() < 5.5

    @pytest.mark.parametrize(
        ("masked", "hidden"), [(0.75, 12), (0.5, 8), (0.01, 0), (0.1, 2), (0.93, 15), (0.99, 16)]
    )
    def test_share(self, masked, hidden, seed):
        if not 0 < hidden < 16:
            with pytest.raises(ValueError, match=f"hides {hidden} of 16 patches"):
                small(masked=masked)
            return
        _, mask = small(masked=masked)(torch.rand(5, 3, 16, 16))
        assert (mask.sum(-1) == hidden).all()

    def test_given_ones(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        mask = torch.zeros(2, 16, dtype=torch.bool)
        mask[0, :5] = mask[1, 3:8] = True  # another share than it was built for
        predicted, same = model(images, mask)
        assert torch.equal(same, mask)
        again, _ = model(torch.where(pixels(mask), torch.nan, images), mask)
        assert torch.equal(again, predicted)
        shared, both = model(images, mask[0])
        assert torch.equal(both, mask[:1].expand(2, -1))
        close(shared[0], predicted[0])

    def test_without_a_batch(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        predicted, mask = model(images[0], seed=seed)
        assert (predicted.shape, mask.shape) == ((3, 16, 16), (16,))
        close(predicted, model(images, seed=seed)[0][0])


class TestLoss:
    @pytest.mark.parametrize("normalize", [True, False])
    def test_counts_hidden_patches_only(self, normalize, seed):
        model = small(normalize=normalize).double().eval()
        images = torch.rand(3, 3, 16, 16, dtype=torch.float64)
        predicted, mask = model(images, seed=seed)
        got, wanted = patchify(predicted, 4), patchify(images, 4)
        if normalize:
            wanted = (wanted - wanted.mean(-1, keepdim=True)) / (wanted.var(-1, keepdim=True) + 1e-6).sqrt()
        expected = sum((got[i, p] - wanted[i, p]).square().mean() for i, p in mask.nonzero().tolist()) / int(
            mask.sum()
        )
        close(model.loss(images, seed=seed), expected, 1e-12)

    def test_what_was_visible_does_not_matter_to_it(self, seed):
        """The decoder also says what visible patches are; being wrong there costs nothing."""
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        mask = model(images, seed=seed)[1]
        decode = model._decode
        before = model.loss(images, mask)
        model._decode = lambda *given: decode(*given) + 100 * (~mask)[..., None]
        assert model.loss(images, mask) == before

    def test_flat_patches(self, seed):
        """A patch of one colour has no deviation to divide by."""
        model = small()
        loss = model.loss(torch.ones(2, 3, 16, 16))
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())

    def test_learns_to_fill_in(self, seed):
        """Of images of one colour each, the visible patches tell the hidden ones: better than guessing."""
        model = small(layers=1, dim=32, decoder_dim=32, normalize=False)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

        def draw(count):
            return torch.rand(count, 3, 1, 1).expand(count, 3, 16, 16)

        for _ in range(150):
            optimizer.zero_grad()
            model.loss(draw(32)).backward()
            optimizer.step()
        guessing = 1 / 12  # the variance of a colour
        assert model.eval().loss(draw(256)) < guessing / 5

    def test_mixed_precision(self, seed):
        model = small()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(torch.rand(2, 3, 16, 16))
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


class TestPictures:
    @pytest.mark.parametrize("normalize", [True, False])
    def test_visible_patches_are_the_image(self, normalize, seed):
        model = small(normalize=normalize).eval()
        images = torch.rand(2, 3, 16, 16)
        picture, mask = model.reconstruct(images, seed=seed)
        shown = ~pixels(mask).expand_as(images)
        assert torch.equal(picture[shown], images[shown])
        assert not torch.allclose(picture, images)

    def test_hidden_patches_are_the_prediction_in_pixels(self, seed):
        for normalize in (True, False):
            model = small(normalize=normalize).double().eval()
            images = torch.rand(2, 3, 16, 16, dtype=torch.float64)
            predicted, mask = model(images, seed=seed)
            picture, _ = model.reconstruct(images, mask)
            got, said, true = (patchify(x, 4)[mask] for x in (picture, predicted, images))
            if normalize:
                said = said * (true.var(-1, keepdim=True) + 1e-6).sqrt() + true.mean(-1, keepdim=True)
            close(got, said, 1e-12)


class TestAfterwards:
    def test_features_are_the_encoders(self, seed):
        model = small().eval()
        images = torch.rand(2, 3, 16, 16)
        assert model.encode(images).shape == (2, 16, 16)
        close(model.features(images), model.encode(images).mean(1))
        assert model.encoder.attention_maps(images).shape == (2, 2, 2, 16, 16)

    @pytest.mark.parametrize("position", ["sinusoidal", "learned", "none"])
    def test_fine_tuning_begins_where_it_ended(self, position, seed):
        model = small(position=position).eval()
        classifier = model.classifier(10, dropout=0.1).eval()
        assert type(classifier) is ViT
        assert classifier.config["dropout"] == 0.1
        images = torch.rand(2, 3, 16, 16)
        assert torch.equal(classifier.features(images), model.features(images))
        assert classifier(images).shape == (2, 10)
        with torch.no_grad():
            classifier.norm.weight.add_(1)
        assert not torch.equal(classifier.features(images), model.features(images))  # a copy

    def test_a_probe_can_be_trained_on_frozen_features(self, seed):
        torch.manual_seed(seed)
        model = small().eval()
        side = torch.arange(64) % 2
        images = torch.rand(64, 3, 16, 16) + 2 * side[:, None, None, None]
        with torch.no_grad():
            features = model.features(images)
        probe = torch.nn.Linear(16, 2)
        optimizer = torch.optim.Adam(probe.parameters(), lr=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            F.cross_entropy(probe(features), side).backward()
            optimizer.step()
        assert (probe(features).argmax(-1) == side).float().mean() > 0.95

    def test_classifier_keeps_dtype_and_can_be_saved(self, tmp_path, seed):
        classifier = small().double().classifier(4)
        assert classifier.head.weight.dtype == torch.float64
        classifier.save(tmp_path / "vit")
        images = torch.rand(2, 3, 16, 16, dtype=torch.float64)
        assert torch.equal(load(tmp_path / "vit")(images), classifier(images))


class TestRefuses:
    def test_masks(self):
        model, images = small(), torch.rand(2, 3, 16, 16)
        wrong = {
            "mask is torch.int64": torch.ones(2, 16, dtype=torch.int64),
            r"of shape \(2, 9\)": torch.ones(2, 9, dtype=torch.bool),
            r"of shape \(3, 16\)": torch.ones(3, 16, dtype=torch.bool),
            r"mask shows \[0\] of 16": torch.ones(2, 16, dtype=torch.bool),
            r"mask shows \[16\] of 16": torch.zeros(2, 16, dtype=torch.bool),
            r"mask shows \[1, 15\] of 16": torch.stack([torch.arange(16) == 0, torch.arange(16) > 0]),
        }
        for said, mask in wrong.items():
            with pytest.raises(ValueError, match=said):
                model(images, mask)
        with pytest.raises(ValueError, match="not both"):
            model(images, torch.arange(16) < 12, seed=1)

    def test_images(self):
        with pytest.raises(ValueError, match=r"got images of shape \(2, 3, 8, 8\)"):
            small()(torch.rand(2, 3, 8, 8))

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"masked": 1.0}, r"masked=1\.0\): takes a share"),
            ({"decoder_layers": 0}, "decoder_layers=0"),
            ({"decoder_heads": 3}, "dim=8 does not divide into heads=3"),
            ({"position": "rotary"}, "position='rotary'"),
        ],
        ids=str,
    )
    def test_options(self, options, said):
        with pytest.raises(ValueError, match=said):
            small(**options)
