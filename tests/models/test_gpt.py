"""GPT: the parameter counts of its sources, transformers' GPT-2 with equal weights, and how it is trained."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful.models import GPT


def tiny(**changes):
    return GPT(11, **{"layers": 2, "heads": 2, "dim": 8, "block": 16, "dropout": 0.0, **changes})


def without_head(model):
    return model.parameter_count - model.head.weight.numel()


def test_parameter_counts():
    """gpt-mini's published count holds a table of positions, which rotary positions never read."""
    assert without_head(GPT.of_size("mini", vocabulary=87, position="learned")) == 10_725_120
    assert without_head(GPT.of_size("mini", vocabulary=87)) == 10_725_120 - 128 * 384
    with torch.device("meta"):
        assert GPT.of_size("gpt2").parameter_count == 124_439_808
    assert GPT.of_size("nano", vocabulary=87).config["dim"] == 48


def test_gpt2_is_transformers(seed):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=13, n_positions=12, n_embd=16, n_layer=3, n_head=4)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    changes = {"layers": 3, "heads": 4, "dim": 16, "block": 12}
    ours = GPT.of_size("gpt2", vocabulary=13, **changes).double().eval()
    assert ours.parameter_count == sum(parameter.numel() for parameter in theirs.parameters())
    ours.load_state_dict(from_gpt2(theirs.state_dict()))
    tokens = torch.randint(13, (3, 12))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-10, atol=1e-10)
    prompt = tokens[:, :5]
    options = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0, "eos_token_id": None}
    wanted = theirs.generate(prompt, max_new_tokens=7, do_sample=False, **options)
    found = torch.stack(ours.generate(prompt, 7, temperature=0))
    assert found.equal(wanted)


def from_gpt2(state):
    """The names of transformers' GPT-2 as ours; its matrices stand the other way round."""
    renamed = {
        "embedding.weight": state["transformer.wte.weight"],
        "positions.weight": state["transformer.wpe.weight"],
    }
    parts = {
        "ln_1": "attention_norm",
        "attn.c_attn": "attention.query_key_value",
        "attn.c_proj": "attention.output",
        "ln_2": "feed_forward_norm",
        "mlp.c_fc": "feed_forward.input",
        "mlp.c_proj": "feed_forward.output",
    }
    for name, value in state.items():
        pieces = name.split(".")
        if pieces[1] == "h":
            middle = parts[".".join(pieces[3:-1])]
            renamed[f"blocks.{pieces[2]}.{middle}.{pieces[-1]}"] = value.mT if value.dim() == 2 else value
        elif pieces[1] == "ln_f":
            renamed[f"norm.{pieces[-1]}"] = value
    return renamed


@pytest.mark.parametrize(
    ("shrunk", "ends"),
    [("all", ("attention", "feed_forward")), ("attention", ("attention",)), ("none", ())],
)
def test_weights_begin_as_published(shrunk, ends):
    model = GPT.of_size("mini", vocabulary=87, layers=4, shrunk=shrunk)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            ends_branch = any(name.endswith(f"{end}.output.weight") for end in ends)
            wanted = 0.02 / math.sqrt(8) if ends_branch else 0.02
            assert parameter.std().item() == pytest.approx(wanted, rel=0.05), name
            assert abs(parameter.mean().item()) < 5 * wanted / math.sqrt(parameter.numel()), name


def test_the_first_loss_is_that_of_guessing(seed):
    model = GPT.of_size("nano", vocabulary=87)
    tokens = torch.randint(87, (4, 65))
    assert model.loss(tokens).item() == pytest.approx(math.log(87), abs=0.1)


def test_the_loss_is_the_cross_entropy_of_the_next_token(seed):
    model, tokens = tiny().double(), torch.randint(11, (3, 9))
    logits = model(tokens[:, :-1])
    wanted = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    torch.testing.assert_close(model.loss(tokens), wanted)
    torch.testing.assert_close(model.loss(tokens[:, :-1], tokens[:, 1:]), wanted)
    targets = tokens[:, 1:].clone()
    targets[:, ::2] = -100
    kept = F.cross_entropy(logits[:, 1::2].transpose(1, 2), tokens[:, 2::2])
    torch.testing.assert_close(model.loss(tokens[:, :-1], targets), kept)
    assert model.bfloat16().loss(tokens).dtype == torch.float32


@pytest.mark.parametrize(
    "changes", [{}, {"position": "alibi", "similarity": "elu"}, {"position": "learned"}], ids=str
)
def test_it_learns_a_text_by_heart(changes, seed):
    model = tiny(dim=32, **changes)
    text = torch.randint(11, (1, 17))
    text[0, :2] = torch.tensor([3, 4])  # a run of one token at the start looks the same wherever it is cut
    optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=5e-3)
    for _ in range(150):
        optimizer.zero_grad()
        loss = model.loss(text)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.item() < 0.02
    assert model.generate(text[0, :2], 15, temperature=0).tolist() == text[0].tolist()


def test_decay_falls_on_the_weights_of_linear_layers_only():
    for tied in (False, True):
        model = tiny(position="learned", norm="layer", tied=tied, learned_scale=True)
        decaying, rest = model.parameter_groups(0.1)
        assert (decaying["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
        linear = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
        assert {id(p) for p in decaying["params"]} == {id(p) for p in linear}
        everything = [*decaying["params"], *rest["params"]]
        assert len(everything) == len({id(p) for p in everything}) == len(list(model.parameters()))
        assert all(p is not model.embedding.weight for p in decaying["params"])


def test_beyond_the_block(seed):
    """Learned positions end with the block; all others go on."""
    tokens = torch.randint(11, (2, 40))
    for position in ("rotary", "sinusoidal", "alibi", "relative", "t5", "none"):
        assert tiny(position=position)(tokens).shape == (2, 40, 11)
    with pytest.raises(ValueError, match="positions up to 39, but has 16"):
        tiny(position="learned")(tokens)


def test_any_leading_dimensions(seed):
    model, tokens = tiny().double().eval(), torch.randint(11, (2, 3, 7))
    torch.testing.assert_close(model(tokens)[1, 2], model(tokens[1, 2]))


@pytest.mark.parametrize("similarity", ["elu", "polynomial(degree=2)"])
def test_kernels_run_as_scans_and_decode_with_a_state_of_constant_size(similarity, seed):
    model = tiny(similarity=similarity, dim=32)
    x = torch.empty(1, 65536, 32)
    assert model.blocks[0].attention.explain(x).strategy == "scan"
    state, sizes = None, set()
    with torch.no_grad():
        for token in range(5):
            _, state = model.step(torch.tensor([[token]]), state)
            sizes.add(state.blocks[0].total.numel())
    assert len(sizes) == 1


def test_it_says_what_it_is():
    model = tiny()
    assert "GPT(vocabulary=11, layers=2" in repr(model)
    assert "2 × TransformerBlock" in repr(model) and f"{model.parameter_count:,} parameters" in repr(model)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: tiny(position="rotery"), ValueError, "position='rotery'.*did you mean 'rotary'"),
        (lambda: tiny(neighbors="everyone"), ValueError, "would see the tokens it is to predict"),
        (lambda: tiny(neighbors="window(3)"), ValueError, "would see the tokens"),
        (lambda: tiny(heads=3), ValueError, "dim=8 does not divide into heads=3"),
        (lambda: tiny(dropout=1.0), ValueError, "dropout=1.0"),
        (lambda: tiny(layers=0), ValueError, "layers=0"),
        (lambda: tiny(norm="batch"), ValueError, "norm='batch'"),
        (lambda: GPT.of_size("huge", vocabulary=3), ValueError, "size='huge'.*'nano'"),
        (lambda: GPT.of_size("mini"), ValueError, "how large the vocabulary is"),
        (lambda: tiny()(torch.randn(2, 3)), TypeError, "tokens are whole numbers, got torch.float32"),
        (lambda: tiny()([1, 2]), TypeError, "tokens must be a tensor of whole numbers, got list"),
        (lambda: tiny()(torch.tensor([3, 11])), ValueError, "^GPT: token 11 is not .* 0 … 10"),
        (lambda: tiny().step(torch.tensor([-1, 3])), ValueError, "^GPT: token -1 is not in the vocabulary"),
        (lambda: tiny().loss(torch.tensor([3, 12])), ValueError, "^GPT.loss: target 12 is not among 0 … 10"),
        (
            lambda: torch.vmap(tiny())(torch.tensor([[3], [11]])),
            ValueError,
            "a token is not in the vocabulary, 0 … 10",
        ),
    ],
)
def test_what_is_wrong_is_said(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("position", ["rotary", "alibi", "learned"])
def test_attention_maps_are_what_it_listens_by(position, seed):
    gpt = GPT(20, layers=2, heads=2, dim=16, block=12, position=position).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():  # far from the beginning, where all listen alike
            parameter.add_(0.5 * torch.randn_like(parameter))
        tokens = torch.randint(20, (3, 12))
        maps = gpt.attention_maps(tokens)
        assert maps.shape == (2, 3, 2, 12, 12)
        assert torch.allclose(maps.sum(-1), torch.ones(2, 3, 2, 12), atol=1e-5)
        assert not maps.triu(1).any()
        block, x = gpt.blocks[0], gpt._embed(tokens, 0)
        _, _, value = block.attention.project(block.attention_norm(x))
        heard = block.attention.output((maps[0] @ value).transpose(-2, -3).flatten(-2))
        assert torch.allclose(heard, block.attention(block.attention_norm(x)), atol=1e-4)
