"""transformers models on `attend`: logits, gradients, generation equal to their own eager attention."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.masking_utils import sdpa_mask, sliding_window_causal_mask_function

from heedful import EluKernel, Everyone, Segments
from heedful.interop import huggingface, weighted

transformers.logging.set_verbosity_error()

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
DECODERS = {
    "gpt2": {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": 5},
    "qwen3": GROUPED,
    "gemma2": GROUPED
    | {"sliding_window": 5, "attn_logit_softcapping": 2.0},  # every other layer has the window
    "llama4_text": GROUPED
    | {
        "attention_chunk_size": 6,
        "num_local_experts": 2,
        "intermediate_size_mlp": 64,
        "no_rope_layers": [1, 1],
    },
}
ENCODERS = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 2},
}
FAMILIES = [(kind, AutoModelForCausalLM, given) for kind, given in DECODERS.items()]
FAMILIES += [(kind, AutoModel, given) for kind, given in ENCODERS.items()]
every = pytest.mark.parametrize(("kind", "auto", "given"), FAMILIES, ids=[kind for kind, *_ in FAMILIES])
decoders = pytest.mark.parametrize(("kind", "given"), DECODERS.items(), ids=DECODERS)


@pytest.fixture(scope="module", autouse=True)
def registered():
    huggingface.register()


def pair(kind, auto, given, name="heedful"):
    """The same weights twice: transformers' own attention, and ours."""
    config = AutoConfig.for_model(kind, **{**SMALL, **given})
    theirs = auto.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    ours = auto.from_config(copy.deepcopy(config), attn_implementation=name).eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def words(batch=3, length=17):
    return torch.randint(3, 50, (batch, length))


def padded(tokens):
    """A mask of tokens with 4, 1 and 0 of padding at the start."""
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    mask[1, :1] = 0
    return mask


def first(output):
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.fixture
def heard(monkeypatch):
    """Every `neighbors` that reaches `attend`."""
    seen, attend = [], weighted.attend

    def listening(*tensors, **options):
        seen.append(options["neighbors"])
        return attend(*tensors, **options)

    monkeypatch.setattr(weighted, "attend", listening)
    return seen


@every
def test_equal_outputs_and_gradients(kind, auto, given, seed):
    theirs, ours = pair(kind, auto, given)
    tokens = words()
    a, b = first(theirs(tokens)), first(ours(tokens))
    close(b, a)
    direction = torch.randn_like(a)
    (a * direction).sum().backward()
    (b * direction).sum().backward()
    for (name, x), (_, y) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        if x.grad is None:
            assert y.grad is None, name
        else:
            torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5 * float(x.grad.abs().max() + 1))


def test_equal_in_float64(seed):
    """GPT-2's own softmax keeps float64; the others' is float32 whatever they are given."""
    theirs, ours = (model.double() for model in pair("gpt2", AutoModelForCausalLM, DECODERS["gpt2"]))
    tokens = words()
    torch.testing.assert_close(ours(tokens).logits, theirs(tokens).logits, rtol=1e-10, atol=1e-10)


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_real(kind, auto, given, side, seed):
    theirs, ours = pair(kind, auto, given)
    tokens = words()
    mask = padded(tokens) if side == "left" else padded(tokens).flip(1)
    with torch.no_grad():
        a, b = (first(model(tokens, attention_mask=mask)) for model in (theirs, ours))
        close(b[mask.bool()], a[mask.bool()])
        other = torch.where(mask.bool(), tokens, (tokens + 1) % 50)
        c = first(ours(other, attention_mask=mask))
    assert torch.equal(c[mask.bool()], b[mask.bool()])
    assert b.isfinite().all()


@decoders
def test_generates_the_same(kind, given, seed):
    theirs, ours = pair(kind, AutoModelForCausalLM, given)
    tokens = words()
    mask = padded(tokens)
    for options in ({}, {"num_beams": 2}, {"use_cache": False}):
        options = options | {"max_new_tokens": 12, "do_sample": False}
        a, b = (model.generate(tokens, attention_mask=mask, **options) for model in (theirs, ours))
        assert torch.equal(a, b), options


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_generates_from_a_static_cache(kind, seed):
    theirs, ours = pair(kind, AutoModelForCausalLM, DECODERS[kind])
    tokens = words()
    options = {
        "cache_implementation": "static",
        "disable_compile": True,
        "max_new_tokens": 8,
        "do_sample": False,
    }
    for mask in (torch.ones_like(tokens), padded(tokens)):
        a, b = (model.generate(tokens, attention_mask=mask, **options) for model in (theirs, ours))
        assert torch.equal(a, b)


@decoders
def test_goes_on_from_a_cache(kind, given, seed):
    """Several new tokens at once after cached ones: the ends align."""
    theirs, ours = pair(kind, AutoModelForCausalLM, given)
    tokens = words()
    with torch.no_grad():
        a, b = (
            model(tokens[:, 9:], past_key_values=model(tokens[:, :9], use_cache=True).past_key_values).logits
            for model in (theirs, ours)
        )
    close(b, a)


@decoders
def test_packed_sequences(kind, given, seed, heard):
    theirs, ours = pair(kind, AutoModelForCausalLM, given)
    tokens = words()
    position = torch.cat([torch.arange(7), torch.arange(10)]).expand(3, -1)
    with torch.no_grad():
        a, b = (model(tokens, position_ids=position, use_cache=False).logits for model in (theirs, ours))
        other = tokens.clone()
        other[:, :7] = other[:, :7].flip(1)
        c = ours(other, position_ids=position, use_cache=False).logits
    close(b, a)
    assert torch.equal(b[:, 7:], c[:, 7:])
    assert any("Segments([7, 10])" in str(neighbors) for neighbors in heard)


def test_packed_otherwise_in_each_row(seed):
    theirs, ours = pair("llama", AutoModelForCausalLM, GROUPED)
    tokens = words()
    cuts = [(7, 10), (9, 8), (17,)]
    position = torch.stack([torch.cat([torch.arange(n) for n in cut]) for cut in cuts])
    with torch.no_grad():
        a, b = (model(tokens, position_ids=position, use_cache=False).logits for model in (theirs, ours))
    close(b, a)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("gpt2", {"Causal()"}),
        ("mistral", {"Causal() & Window(4)"}),
        ("gemma2", {"Causal()", "Causal() & Window(4)"}),
        ("llama4_text", {"Causal() & Segments([6, 6, 5])"}),
        ("bert", {"Everyone()"}),
        ("modernbert", {"Everyone()", "Window(3)"}),
    ],
)
def test_structure_is_recognised(kind, expected, seed, heard):
    auto = AutoModel if kind in ENCODERS else AutoModelForCausalLM
    _, ours = pair(kind, auto, (ENCODERS | DECODERS)[kind])
    ours(words())
    assert {str(neighbors) for neighbors in heard} == expected


def test_a_window_keeps_its_structure_beside_padding(seed, heard):
    _, ours = pair("mistral", AutoModelForCausalLM, DECODERS["mistral"])
    tokens = words()
    ours(tokens, attention_mask=padded(tokens))
    assert {str(neighbors) for neighbors in heard} == {"Causal() & Window(4) & Mask(3 × 1 × 1 × 17)"}


@every
def test_weights_on_request(kind, auto, given, seed):
    theirs, ours = pair(kind, auto, given)
    tokens = words()
    with torch.no_grad():
        a, b = (model(tokens, output_attentions=True) for model in (theirs, ours))
    close(first(b), first(a))
    assert len(b.attentions) == 2
    for x, y in zip(a.attentions, b.attentions, strict=True):
        close(y, x)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_and_decoder(kind, seed):
    given = {
        "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0},
        "bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
        | {
            f"{side}_{what}": n
            for side in ("encoder", "decoder")
            for what, n in (("ffn_dim", 64), ("attention_heads", 4))
        },
    }[kind]
    theirs, ours = pair(kind, AutoModelForSeq2SeqLM, given | {"decoder_start_token_id": 0})
    tokens = words()
    mask, decoder = padded(tokens), words(length=7)
    for options in ({}, {"attention_mask": mask}, {"attention_mask": mask.flip(1)}):
        a, b = (model(tokens, decoder_input_ids=decoder, **options).logits for model in (theirs, ours))
        close(b, a)
        assert torch.equal(*(model.generate(tokens, max_new_tokens=8, **options) for model in (theirs, ours)))
    a.sum().backward()
    b.sum().backward()
    for (name, x), (_, y) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        assert (x.grad is None) == (y.grad is None), name
        if x.grad is not None:
            torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5 * float(x.grad.abs().max() + 1))


@pytest.mark.parametrize("form", ["boolean", "added", "graded"])
def test_masks_of_your_own(form, seed):
    theirs, ours = pair("llama", AutoModelForCausalLM, GROUPED)
    tokens = words()
    allowed = torch.rand(3, 1, 17, 17).lt(0.5) | torch.eye(17, dtype=torch.bool)
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    if form == "graded":
        added = added + torch.randn(17, 17)
    with torch.no_grad():
        a = theirs(tokens, attention_mask=added).logits
        b = ours(tokens, attention_mask=allowed if form == "boolean" else added).logits
    close(b, a)


def test_images(seed):
    given = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_dropout_prob": 0.0}
    theirs, ours = pair("vit", AutoModel, given)
    images = torch.randn(2, 1, 8, 8)
    close(ours(images).last_hidden_state, theirs(images).last_hidden_state)


def test_arguments_by_name(seed):
    """Some models pass `attention_mask` by its name, and words meant for other implementations."""
    x = torch.randn(1, 2, 4, 8)
    attention = transformers.AttentionInterface()["heedful"]
    module = torch.nn.Module()
    out, weights = attention(
        module, x, x, x, attention_mask=None, is_causal=False, sliding_window=3, max_length_q=4
    )
    close(out, torch.nn.functional.scaled_dot_product_attention(x, x, x).transpose(1, 2))
    assert weights is None


def test_dropout_is_drawn_in_training_only(seed):
    given = DECODERS["gpt2"] | {"attn_pdrop": 0.5}
    theirs, ours = pair("gpt2", AutoModelForCausalLM, given)
    tokens = words()
    with torch.no_grad():
        close(ours(tokens).logits, theirs(tokens).logits)
        ours.train()
        torch.manual_seed(seed)
        a = ours(tokens).logits
        torch.manual_seed(seed)
        assert torch.equal(ours(tokens).logits, a)
        assert not torch.allclose(ours(tokens).logits, a)


def test_dropout_keeps_the_mean(seed):
    """One layer's attention output, averaged over many draws, is the one without dropout."""
    query, key, value = torch.randn(3, 1, 2, 6, 4).unbind(0)
    module = torch.nn.Module()

    def call(p):
        return huggingface._attention(module, query, key, value, None, None, "auto", dropout=p)[0]

    drawn = torch.stack([call(0.3) for _ in range(2000)])
    error = (drawn.mean(0) - call(0.0)) / (drawn.std(0) / len(drawn) ** 0.5).clamp_min(1e-6)
    assert error.abs().max() < 6  # 48 entries, each within six standard errors


def test_gradient_checkpointing(seed):
    theirs, ours = pair("mistral", AutoModelForCausalLM, DECODERS["mistral"])
    ours.train().gradient_checkpointing_enable()
    theirs.train()
    tokens = words()
    mask = padded(tokens)
    for model in (theirs, ours):
        model(tokens, attention_mask=mask, use_cache=False).logits[mask.bool()].sum().backward()
    for x, y in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5 * float(x.grad.abs().max() + 1))


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_compiles_whole(kind, seed):
    theirs, ours = pair(kind, AutoModelForCausalLM, DECODERS[kind])
    tokens = words()
    mask = padded(tokens)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        close(compiled(tokens, use_cache=False).logits, theirs(tokens).logits)
        a, b = (model(tokens, attention_mask=mask, use_cache=False).logits for model in (theirs, compiled))
    close(b[mask.bool()], a[mask.bool()])


def test_half_precision(seed):
    theirs, ours = (model.bfloat16() for model in pair("llama", AutoModelForCausalLM, GROUPED))
    tokens = words()
    with torch.no_grad():
        a, b = theirs(tokens).logits, ours(tokens).logits
    assert b.dtype == torch.bfloat16
    torch.testing.assert_close(b, a, rtol=0.05, atol=0.02)


def test_another_similarity_under_a_name_of_its_own(seed):
    huggingface.register("heedful-elu", similarity="elu")
    theirs, ours = pair("gpt2", AutoModelForCausalLM, DECODERS["gpt2"], name="heedful-elu")
    tokens = words()
    with torch.no_grad():
        whole = ours(tokens).logits
        assert not torch.allclose(whole, theirs(tokens).logits, atol=1e-3)
        cached = ours(tokens[:, :9], use_cache=True).past_key_values
        close(ours(tokens[:, 9:], past_key_values=cached).logits, whole[:, 9:])
    huggingface.register("heedful-elu-object", similarity=EluKernel(), strategy="scan")
    _, forced = pair("gpt2", AutoModelForCausalLM, DECODERS["gpt2"], name="heedful-elu-object")
    forced.load_state_dict(ours.state_dict())
    with torch.no_grad():
        close(forced(tokens).logits, whole)


def test_a_pattern_is_a_tensor_to_everyone_else():
    options = {"batch_size": 2, "q_length": 6, "kv_length": 6, "local_size": 3}
    options["mask_function"] = sliding_window_causal_mask_function(3)
    pattern, dense = huggingface._mask(**options), sdpa_mask(**options)
    assert str(pattern.neighbors) == "Causal() & Window(2)"
    assert (pattern.shape, pattern.dtype, pattern.ndim) == (dense.shape, torch.bool, 4)
    assert torch.equal(pattern[:, :, :, :4], dense[:, :, :, :4])
    assert torch.equal(pattern & dense, dense)
    assert torch.equal(torch.cat([pattern, pattern], -1), torch.cat([dense, dense], -1))
    assert type(pattern[:, :, 1:]) is torch.Tensor
    assert "Window(2)" in repr(pattern)


def test_windows_of_one_and_overlays_are_dense():
    from transformers.masking_utils import causal_mask_function, or_masks

    options = {"batch_size": 2, "q_length": 6, "kv_length": 6}
    alone = huggingface._mask(**options, mask_function=sliding_window_causal_mask_function(1), local_size=1)

    assert torch.equal(alone[0, 0], torch.eye(6, dtype=torch.bool))
    both = or_masks(causal_mask_function, lambda b, h, i, j: j == 5)
    mask = huggingface._mask(**options, mask_function=both, allow_is_causal_skip=False)
    assert mask[0, 0, :, 5].all()


def test_chunks_after_a_cache():
    assert huggingface._chunks(6, [range(4, 13)]) == Segments([2, 6, 1])
    assert huggingface._chunks(6, [range(6)]) == Everyone()
    assert huggingface._chunks(6, [range(7), range(2, 12)]) == Segments([6, 1, 4, 6])


def test_packed_sequences_with_positions_of_their_own():
    """As transformers 5.23 hands them over: what is asked of a pair is asked of places in its sequence."""
    masks = pytest.importorskip("transformers.masking_utils")
    if not hasattr(masks, "remap_positions_for_packed_sequence"):
        pytest.skip("this transformers does not number packed sequences anew")
    places = torch.cat([torch.arange(7), torch.arange(10)]).expand(3, -1)
    apart = masks.packed_sequence_mask_function(torch.tensor([0] * 7 + [1] * 10).expand(3, -1))
    chunked = masks.chunked_overlay(6, torch.zeros(3, dtype=torch.int64))
    for inner in (
        masks.causal_mask_function,
        masks.sliding_window_causal_mask_function(4),
        masks.and_masks(chunked, masks.causal_mask_function),
    ):
        moved = masks.remap_positions_for_packed_sequence(inner, places)
        found = huggingface._read(masks.and_masks(apart, moved), [range(17)])
        i, j = torch.arange(17)[:, None], torch.arange(17)[None, :]
        pairs = [[bool(masks.and_masks(apart, moved)(0, 0, a, b)) for b in j[0]] for a in i[:, 0]]
        assert torch.equal(found.allows(i, j, 17, 17), torch.tensor(pairs))
        assert huggingface._read(moved, [range(17)]) is None  # nothing keeps the sequences apart
        other = places.clone()
        other[1] = other[1].flip(0)
        uneven = masks.remap_positions_for_packed_sequence(inner, other)
        assert huggingface._read(masks.and_masks(apart, uneven), [range(17)]) is None


class TestRefuses:
    def test_attention_sinks(self):
        given = GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}
        _, ours = pair("gpt_oss", AutoModelForCausalLM, given)
        with pytest.raises(NotImplementedError, match="sinks"):
            ours(words())

    @pytest.mark.parametrize("kind", ["bloom", "mpt"])
    def test_models_with_attention_of_their_own(self, kind):
        given = {"n_layer": 2, "n_head": 4, "n_layers": 2, "n_heads": 4, "d_model": 32}
        _, ours = pair(kind, AutoModelForCausalLM, given)
        with pytest.raises(ValueError, match="code of its own"):
            ours(words())

    def test_caps_on_another_similarity(self):
        huggingface.register("heedful-uniform", similarity="uniform")
        _, ours = pair("gemma2", AutoModelForCausalLM, DECODERS["gemma2"], name="heedful-uniform")
        with pytest.raises(ValueError, match=r"caps its softmax scores at 2\.0"):
            ours(words())

    def test_names_and_similarities_that_are_not(self):
        with pytest.raises(ValueError, match="name='eager'"):
            huggingface.register("eager")
        with pytest.raises(TypeError, match="similarity=3"):
            huggingface.register("mine", similarity=3)
        with pytest.raises(ValueError, match="softmaks"):
            huggingface.register("mine", similarity="softmaks")

    def test_a_strategy_that_takes_no_bias(self):
        huggingface.register("heedful-fused", strategy="fused")
        given = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
        _, ours = pair(
            "t5", AutoModelForSeq2SeqLM, given | {"decoder_start_token_id": 0}, name="heedful-fused"
        )
        with pytest.raises(ValueError, match="strategy='fused' takes no bias"):
            ours(words(), decoder_input_ids=words())

    def test_other_kinds_of_mask(self):

        x = torch.randn(1, 2, 4, 8)
        with pytest.raises(TypeError, match="attention_mask is a list"):
            huggingface._attention(torch.nn.Module(), x, x, x, [1, 0], None, "auto")
        with pytest.raises(NotImplementedError, match="paged"):
            huggingface._attention(torch.nn.Module(), x, x, x, None, None, "auto", cache=object())
