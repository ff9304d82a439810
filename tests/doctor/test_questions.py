"""Active questions: leaks are found where they are, and nowhere else; models stay as they were."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful import Graph, data, doctor, models
from heedful.doctor import twins
from heedful.doctor.watching.samples import fingerprints


class Leaky(nn.Module):
    """Causal attention, but for one pair of positions."""

    def __init__(self, length: int, pair: tuple[int, int] | None, width: int = 8):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, width), nn.Linear(width, 11)
        self.norm = nn.LayerNorm(11)
        mask = torch.ones(length, length).tril().bool()
        if pair is not None:
            mask[pair] = True
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        x = self.embed(tokens)
        scores = (x @ x.mT).masked_fill(~self.mask, -torch.inf)
        return self.norm(self.out(scores.softmax(-1) @ x))


def test_one_leaking_pair_is_found(seed):
    """Behind a LayerNorm, where a sum of outputs has no gradient at all."""
    tokens = torch.randint(11, (2, 12))
    assert doctor.check_causal(Leaky(12, None), tokens) is None
    early, late = sorted(torch.randperm(12)[:2].tolist())
    found = doctor.check_causal(Leaky(12, (early, late)), tokens)
    assert found is not None and found.what == f"output {early} depends on input {late}"
    assert found.name == "causal-leak" and found.measured > 0


def test_heedful_s_own_models_do_not_leak(seed):
    assert doctor.check_causal(models.GPT.of_size("nano", 20), torch.randint(20, (2, 16))) is None
    rnn = models.RNN(11, hidden=12)
    assert doctor.check_causal(rnn, torch.randint(11, (2, 10))) is None


class Mixing(nn.Module):
    def __init__(self, axis: int):
        super().__init__()
        self.axis, self.inner, self.norm = axis, nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.inner(x).softmax(self.axis) + x)


def test_batch_leaks_are_found_behind_a_norm(seed):
    x = torch.randn(5, 4, 6)
    assert doctor.check_batch_independence(Mixing(1), x) is None
    found = doctor.check_batch_independence(Mixing(0), x)
    assert found is not None and found.name == "batch-leak" and found.where == "norm"
    norm = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    assert doctor.check_batch_independence(norm, torch.randn(5, 6)) is None  # asked in evaluation mode
    assert norm.training


def test_the_validation_set_of_padding_is_in_its_training_set():
    published, clean = data.boxes(), data.boxes(clean=True)
    assert doctor.check_overlap(published.train.inputs, published.val.inputs).measured == 1
    assert doctor.check_overlap(published.train.inputs, published.test.inputs) is None
    assert doctor.check_overlap(clean.train.inputs, clean.val.inputs) is None


def test_pictures_of_few_colours_have_fingerprints_of_their_own():
    images = data.boxes(clean=True).train.inputs
    for form in (images, images.float() / 255, images.bool(), images[..., :-1].double()):
        assert len(set(fingerprints(form))) == len(set(map(tuple, form.flatten(1).tolist())))


def test_overlap(seed):
    x = torch.randn(100, 3)
    assert doctor.check_overlap(x[:80], x[80:]) is None
    assert doctor.check_overlap(x[:80], x[70:]).measured == pytest.approx(1 / 3)


def test_permutation(seed):
    x = torch.randn(2, 7, 4)
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    assert doctor.check_permutation(attention, x) is None
    rnn = nn.GRU(4, 4, batch_first=True)
    assert doctor.check_permutation(rnn, x).name == "not-equivariant"
    assert doctor.check_permutation(lambda x: x.mean(1), x, invariant=True) is None


@pytest.mark.parametrize("form", ["dense", "edges", "graph"])
def test_how_nodes_are_numbered(seed, form):
    """Sums over neighbours do not care; adding the node's number does."""
    x, dense = torch.randn(9, 4), (torch.rand(9, 9) < 0.4).float()
    given = {"dense": dense, "edges": dense.nonzero().T.flip(0), "graph": Graph.from_dense(dense)}[form]

    def summed(x, graph):
        if form == "graph":
            return graph.propagate(x)
        return graph @ x if form == "dense" else torch.zeros_like(x).index_add(0, graph[1], x[graph[0]])

    assert doctor.check_permutation(summed, x, given) is None
    counted = doctor.check_permutation(lambda x, g: summed(x + torch.arange(9.0)[:, None], g), x, given)
    assert counted is not None and "renumbering the nodes" in counted.what
    pooled = doctor.check_permutation(lambda x, g: summed(x, g).sum(0), x, given, invariant=True)
    assert pooled is None


def test_receptive_field_is_the_probe_s(seed):
    model = nn.Conv2d(1, 1, 3, padding=1)
    assert int((doctor.receptive_field(model, torch.randn(1, 1, 9, 9), at=(3, 7)) > 0).sum()) == 9


def test_examine_leaves_the_model_alone(seed):
    model = nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3)
    ).eval()
    before = [entry.clone() for entry in model.state_dict().values()]
    batch = torch.randn(32, 6), torch.randint(3, (32,))
    state = torch.get_rng_state()
    report = doctor.examine(model, F.cross_entropy, batch)
    assert report.findings == []
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert torch.equal(state, torch.get_rng_state()) and not model.training
    assert all(p.grad is None for p in model.parameters())


def deep(norm: bool, depth: int, skip: bool = False):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(
                nn.Linear(32, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.ReLU()
            )

        def forward(self, x):
            return x + self.f(x) if skip else self.f(x)

    return nn.Sequential(nn.Linear(10, 32), *[Block() for _ in range(depth)], nn.Linear(32, 4))


def test_depth_is_diagnosed_and_the_cause_named(seed):
    batch = torch.randn(64, 10), torch.randint(4, (64,))
    asked = {
        name: doctor.examine(model, F.cross_entropy, batch, independent=False)
        for name, model in {
            "shallow": deep(True, 18),
            "deep": deep(True, 54),
            "residual": deep(True, 54, skip=True),
            "small": deep(False, 30),
        }.items()
    }
    assert not {"vanishing-gradients", "exploding-gradients"} & {f.name for f in asked["shallow"].findings}
    assert "exploding-gradients" not in asked["residual"]
    found = asked["deep"]["exploding-gradients"]
    assert found.measured > 100 and "no skip" in found.cause and "skips" in found.proof
    found = asked["small"]["vanishing-gradients"]
    assert found.measured < 1e-3 and "initial weights" in found.cause


def test_a_small_head_does_not_make_a_stream_vanish(seed):
    """Behind the blocks of BERT two small layers shrink gradients, once each; between blocks they do not."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, **sizes)
    for _ in range(5):
        model, tokens = transformers.BertForSequenceClassification(config), torch.randint(30, (16, 10))
        assert (
            twins.flow(model, SimpleNamespace(arguments=(tokens,), options={}, objective=None)).stream > 0.1
        )
    batch = SimpleNamespace(arguments=(torch.randn(64, 10),), options={}, objective=None)
    assert twins.flow(deep(False, 30), batch).stream < 1e-3


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: doctor.examine(
                nn.Linear(2, 2).requires_grad_(False), F.mse_loss, (torch.ones(2, 2),) * 2
            ),
            "nothing to train",
        ),
        (lambda: doctor.examine(nn.Linear(2, 2), lambda out, y: out, (torch.ones(2, 2),) * 2), "one number"),
        (lambda: doctor.check_causal(nn.Linear(2, 2), torch.ones(3, 2)), r"\(batch, length, …\)"),
        (lambda: doctor.check_batch_independence(nn.Linear(2, 2), torch.ones(1, 2)), "two or more"),
    ],
)
def test_wrong_calls_are_told(call, words):
    with pytest.raises(ValueError, match=words):
        call()
