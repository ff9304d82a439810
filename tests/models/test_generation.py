"""Generated text: the same with and without a cache, alone and in a batch, drawn as the rules say."""

from __future__ import annotations

import copy
import itertools
from contextlib import nullcontext

import pytest
import torch

from heedful.models import GPT
from heedful.models.generation import Draw
from heedful.models.gpt import POSITIONS
from heedful.models.sampling import distribution, next_token

V = 13


def gpt(**changes):
    settings = {"layers": 2, "heads": 4, "dim": 16, "block": 10, "dropout": 0.1, **changes}
    model = GPT(V, **settings).double()
    with torch.no_grad():
        for parameter in model.parameters():  # as made it would hardly tell tokens apart, nor positions
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model.eval()


def naive(model, prompt, length, pick, window, hop):
    """The definition: crop, run the whole, choose, append."""
    tokens = list(prompt)
    for n in range(length):
        over = max(0, len(tokens) - window)
        seen = tokens[-(-over // hop) * hop :]
        assert 0 < len(seen) <= window
        with torch.no_grad():
            logits = model(torch.tensor([seen]))[0, -1]
        tokens.append(int(pick(logits, n)))
    return tokens


def greedy(logits, n):
    return logits.argmax()


SIMILARITIES = ["softmax", "elu", "polynomial(degree=2)", "argmax", "uniform"]
MODELS = [
    *({"position": position, "similarity": kind} for position in POSITIONS for kind in SIMILARITIES),
    {"neighbors": "causal & window(3)", "position": "alibi"},
    {"neighbors": "causal & window(3)", "similarity": "elu"},
    {"kv_heads": 2, "norm": "layer", "tied": True, "learned_scale": True, "position": "learned"},
    {"kv_heads": 1, "activation": "swiglu", "bias": False},
]
every = pytest.mark.parametrize(
    "changes",
    MODELS,
    ids=lambda changes: (
        ", ".join(changes.values()) if all(isinstance(v, str) for v in changes.values()) else "other"
    ),
)


@every
def test_with_and_without_a_cache_it_is_the_definition(changes, seed):
    """Past the block, too: 4 + 20 tokens through a window of 10."""
    model, prompt = gpt(**changes), torch.randint(V, (4,)).tolist()
    wanted = naive(model, prompt, 20, greedy, 10, 5)
    for cache in (True, False):
        assert model.generate(prompt, 20, temperature=0, cache=cache).tolist() == wanted


@every
def test_stepping_gives_what_the_whole_gives(changes, seed):
    model, tokens = gpt(**changes), torch.randint(V, (2, 9))
    with torch.no_grad():
        whole, state = model(tokens), None
        for part in (slice(0, 3), slice(3, 4), slice(4, 8), slice(8, 9)):
            logits, state = model.step(tokens[:, part], state)
            torch.testing.assert_close(logits, whole[:, part], rtol=1e-8, atol=1e-8)
        assert state.length == 9
        last, _ = model.step(tokens, last=True)
    torch.testing.assert_close(last, whole[:, -1:], rtol=1e-8, atol=1e-8)


@every
def test_the_decoder_gives_what_stepping_gives(changes, seed):
    model, tokens = gpt(**changes), torch.randint(V, (3, 10))
    with torch.no_grad():
        whole = model(tokens)
        _, state = model.step(tokens[:, :4])
        follow = model.decoder(state, 10)
        for t in range(4, 10):
            logits = follow(tokens[:, t : t + 1])
            torch.testing.assert_close(logits, whole[:, t : t + 1], rtol=1e-8, atol=1e-8)


def test_modules_that_are_watched_or_replaced_are_called(seed):
    """The decoder that takes weights out of their modules must not go past a hook or a stranger's layer."""
    plain, watched = gpt(), gpt()
    watched.load_state_dict(plain.state_dict())
    calls = []
    watched.blocks[1].feed_forward.input.register_forward_hook(lambda *_: calls.append(1))
    assert plain.generate([1, 2], 5, temperature=0).equal(watched.generate([1, 2], 5, temperature=0))
    assert len(calls) == 5

    class Silent(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 0

    layer = plain.blocks[0].feed_forward
    layer.output = Silent(64, 16).double()
    wanted = naive(plain, [1, 2], 8, greedy, 10, 5)
    assert plain.generate([1, 2], 8, temperature=0).tolist() == wanted


@pytest.mark.parametrize("prompt", [1, 4, 10, 11, 37])
@pytest.mark.parametrize("window, hop", [(None, None), (10, 1), (7, 3), (4, 4), (1, 1)])
def test_windows_slide_as_they_say(prompt, window, hop, seed):
    model, tokens = gpt(), torch.randint(V, (prompt,)).tolist()
    wanted = naive(model, tokens, 12, greedy, window or 10, hop or 5)
    for cache in (True, False):
        found = model.generate(tokens, 12, temperature=0, window=window, hop=hop, cache=cache)
        assert found.tolist() == wanted


def test_a_window_may_exceed_the_block_unless_positions_are_learned(seed):
    model = gpt(similarity="elu")
    assert len(model.generate([1], 30, window=1000)) == 31
    with pytest.raises(ValueError, match=r"LearnedPositions.*10 of them"):
        gpt(position="learned").generate([1], 30, window=1000)


@pytest.mark.parametrize(
    "changes", [{}, {"similarity": "elu"}, {"position": "learned"}, {"position": "alibi"}], ids=str
)
@pytest.mark.parametrize("temperature", [0, 1.3])
def test_prompts_of_unequal_lengths_are_continued_as_if_alone(changes, temperature, seed):
    model = gpt(**changes)
    prompts = [torch.randint(V, (n,)).tolist() for n in (3, 0, 1, 14, 3, 8)]
    options = {"temperature": temperature, "top_p": 0.9}
    together = model.generate(prompts, 9, seed=seed, **options)
    for row, prompt in enumerate(prompts):
        alone = model.generate(prompt, 9, seed=seed + row, **options)
        assert together[row].tolist() == alone.tolist()
        assert together[row].tolist()[: len(prompt)] == prompt
        assert len(alone) == len(prompt) + 9


def test_an_empty_prompt_goes_on_from_the_start_token(seed):
    model = gpt()
    assert model.generate([], 6, temperature=0).tolist() == model.generate([0], 6, temperature=0).tolist()[1:]
    found = model.generate([], 6, temperature=0, start=5)
    assert found.tolist() == model.generate([5], 6, temperature=0).tolist()[1:]


def test_prompts_come_in_many_clothes(seed):
    model = gpt()
    one = model.generate([3, 1, 4], 5, temperature=0)
    assert one.equal(model.generate(torch.tensor([3, 1, 4]), 5, temperature=0))
    assert one.equal(model.generate((3, 1, 4), 5, temperature=0))
    assert one.equal(model.generate(torch.tensor([3, 1, 4], dtype=torch.int32).numpy(), 5, temperature=0))
    for two in ([[3, 1, 4], [1]], [torch.tensor([3, 1, 4]), torch.tensor([1])]):
        found = model.generate(two, 5, temperature=0)
        assert isinstance(found, list) and found[0].equal(one) and len(found[1]) == 6
    rows = model.generate(torch.tensor([[3, 1, 4], [3, 1, 4]]), 5, temperature=0)
    assert rows[0].equal(one) and rows[1].equal(one)
    assert model.generate([3, 1, 4], 0).tolist() == [3, 1, 4]
    assert model.generate(torch.zeros(0, 3, dtype=torch.long), 5) == []


def test_seeds_decide_and_nothing_else_does(seed):
    model = gpt()
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    first = model.generate([1], 9, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert first.equal(model.generate([1], 9, seed=seed))
    texts = model.generate([[1]] * 20, 9, seed=seed)
    assert texts[0].equal(first)
    assert len({tuple(text.tolist()) for text in texts}) > 10
    assert texts[7].equal(model.generate([1], 9, seed=seed + 7))
    assert model.generate([[1], [1]], 9, seed=[seed, seed])[1].equal(first)
    torch.manual_seed(seed)
    unseeded = model.generate([1], 9)
    torch.manual_seed(seed)
    assert unseeded.equal(model.generate([1], 9))


@pytest.mark.parametrize("changes", [{}, {"position": "t5", "kv_heads": 2}, {"similarity": "elu"}], ids=str)
def test_half_precision(changes, seed):
    """As a model, and as an arithmetic for one: near the same logits, token by token."""
    model, tokens = gpt(**changes).float(), torch.randint(V, (2, 10))
    half = copy.deepcopy(model).bfloat16()
    with torch.no_grad():
        wanted = model(tokens)
        spread = wanted.std()
        for one, context in ((half, nullcontext()), (model, torch.autocast("cpu", dtype=torch.bfloat16))):
            with context:
                _, state = one.step(tokens[:, :4])
                follow = one.decoder(state, 10)
                for t in range(4, 10):
                    error = follow(tokens[:, t : t + 1]).float() - wanted[:, t : t + 1]
                    assert error.abs().mean() < 0.2 * spread
                assert len(one.generate([1, 2], 12, seed=seed)) == 14


def test_generating_leaves_the_model_as_it_was(seed):
    model = gpt().train()
    text = model.generate([1], 5, seed=0)
    assert model.training
    assert text.equal(model.eval().generate([1], 5, seed=0)), "dropout was on"
    assert not model.training
    model.loss(text[None]).backward()  # what was generated can be trained on


# Stops


def test_a_token_ends_a_text_and_stays_in_it(seed):
    model = gpt()
    free = model.generate([1, 2], 30, seed=seed).tolist()
    stop = free[12]
    end = free.index(stop, 2)
    assert model.generate([1, 2], 30, seed=seed, stop=stop).tolist() == free[: end + 1]
    pair = free[12:14]
    ends = [n for n in range(3, 31) if free[n - 1 : n + 1] == pair and n - 1 >= 2]
    assert model.generate([1, 2], 30, seed=seed, stop=[pair]).tolist() == free[: ends[0] + 1]
    assert model.generate([1, 2], 30, seed=seed, stop=[pair, stop]).tolist() == free[: end + 1]
    assert model.generate([1, 2], 30, seed=seed, stop=[]).tolist() == free


def test_a_string_ends_a_text(seed):
    def decode(tokens):
        return "".join("abcdefghijklm"[token] for token in tokens)

    model = gpt()
    free = model.generate([1, 2], 30, seed=seed).tolist()
    wanted = decode(free[9:12])
    end = decode(free[2:]).index(wanted) + 2 + 3
    found = model.generate([1, 2], 30, seed=seed, stop=wanted, decode=decode)
    assert found.tolist() == free[:end]
    # A prompt that holds the string does not end the text.
    assert len(model.generate(free[9:12], 1, seed=seed, stop=wanted, decode=decode)) == 4
    with pytest.raises(ValueError, match="pass decode="):
        model.generate([1], 5, stop="the end")


def test_rows_stop_for_themselves(seed):
    model, prompts = gpt(), [[1, 2], [3], [4, 5, 6]]
    free = model.generate(prompts, 20, seed=seed)
    stop = free[1].tolist()[8]
    for row, text in enumerate(model.generate(prompts, 20, seed=seed, stop=stop)):
        assert text.equal(model.generate(prompts[row], 20, seed=seed + row, stop=stop))


# Streaming


def test_a_stream_draws_what_generate_draws(seed):
    model, prompts = gpt().train(), [[1, 2], [3], [4, 5, 6, 7]]
    options = {"seed": seed, "temperature": 0.8, "top_k": 6}
    wanted = model.generate(prompts, 8, **options)
    rows = [list(prompt) for prompt in prompts]
    for draw in model.stream(prompts, 8, **options):
        assert isinstance(draw, Draw)
        assert not torch.is_inference_mode_enabled() and model.training
        rows[draw.row].append(draw.token)
    assert rows == [text.tolist() for text in wanted]


def test_a_draw_tells_how_it_came_about(seed):
    model, tokens = gpt(), [3, 1]
    draws = list(model.stream(tokens, 6, seed=seed, temperature=0.7, top_p=0.8, alternatives=4))
    assert [draw.ended for draw in draws] == [""] * 5 + ["length"]
    for draw in draws:
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0, -1]
        probability = logits.softmax(-1)
        chance = distribution(logits, temperature=0.7, top_p=0.8)
        assert draw.probability == pytest.approx(float(probability[draw.token]), rel=1e-6)
        assert draw.chance == pytest.approx(float(chance[draw.token]), rel=1e-6)
        assert draw.chance > 0
        others = [other for other in probability.argsort(descending=True).tolist() if other != draw.token]
        assert [other.token for other in draw.alternatives] == others[:4]
        for other in draw.alternatives:
            assert other.probability == pytest.approx(float(probability[other.token]), rel=1e-6)
            assert other.chance == pytest.approx(float(chance[other.token]), rel=1e-6)
        tokens.append(draw.token)
    assert all(draw.alternatives == () for draw in model.stream([1], 3, alternatives=0))
    assert all(len(draw.alternatives) == V - 1 for draw in model.stream([1], 3, alternatives=99))


def test_a_stream_says_why_it_ended(seed):
    model = gpt()
    third = model.generate([1], 3, temperature=0).tolist()[3]
    draws = list(model.stream([1], 9, temperature=0, stop=third))
    assert draws[-1].ended == "stop" and draws[-1].token == third
    assert all(draw.ended == "" for draw in draws[:-1])


def test_a_stream_comes_as_it_is_drawn(seed):
    """Taking three tokens of a million costs three steps; and what is wrong is said at once."""
    drawn = list(itertools.islice(gpt().stream([1], 1_000_000), 3))
    assert len(drawn) == 3
    with pytest.raises(ValueError, match="temperature=-1"):
        gpt().stream([1], 3, temperature=-1)
    with pytest.raises(TypeError, match="temprature"):
        gpt().stream([1], 3, temprature=1)


# The rules of choosing


def test_temperature_divides_the_logits(seed):
    logits = torch.randn(3, V)
    for temperature in (0.1, 1.0, 2.5):
        wanted = (logits.double() / temperature).softmax(-1)
        torch.testing.assert_close(distribution(logits, temperature=temperature), wanted)
    certain = distribution(logits, temperature=0)
    assert certain.argmax(-1).equal(logits.argmax(-1)) and certain.sum() == 3
    assert distribution(logits, temperature=1e-300).equal(certain)
    assert next_token(logits, temperature=0).equal(logits.argmax(-1))


def test_top_p_keeps_the_smallest_set_that_reaches_p_with_the_token_that_crosses(seed):
    logits = torch.randn(50, V)
    probability = logits.double().softmax(-1)
    for p in (0.01, 0.3, 0.7, 0.95, 1.0):
        kept = distribution(logits, top_p=p)
        for row in range(50):
            inside = kept[row] > 0
            mass, least = probability[row][inside].sum(), probability[row][inside].min()
            assert mass >= p - 1e-12
            assert mass - least < p, "the set without its least likely token would have reached p, too"
            if not inside.all():
                assert probability[row][~inside].max() <= least
            torch.testing.assert_close(kept[row][inside], probability[row][inside] / mass)


def test_top_p_at_the_edge():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    assert (distribution(logits, top_p=0.5) > 0).tolist() == [True, False, False, False]
    assert (distribution(logits, top_p=0.5001) > 0).tolist() == [True, True, False, False]


def test_top_k_keeps_k_and_comes_before_top_p(seed):
    logits = torch.randn(20, V)
    for k in (1, 3, V, 100):
        kept = distribution(logits, top_k=k)
        assert ((kept > 0).sum(-1) == min(k, V)).all()
        best = logits.topk(min(k, V), -1).indices
        assert (kept.gather(-1, best) > 0).all()
    equal = torch.zeros(5)
    assert (distribution(equal, top_k=2) > 0).sum() == 2
    four = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()  # of the best two, 4/7 is the first's: past one half
    assert (distribution(four, top_k=2, top_p=0.5) > 0).tolist() == [True, False, False, False]


def test_draws_follow_the_distribution(seed):
    logits = torch.randn(V)
    drawn = next_token(logits.expand(20000, V), top_k=5, temperature=1.5)
    share = torch.bincount(drawn, minlength=V) / 20000
    wanted = distribution(logits, top_k=5, temperature=1.5)
    assert (share[wanted == 0] == 0).all()
    assert (share - wanted).abs().max() < 5 * (0.25 / 20000) ** 0.5


def test_no_number_draws_what_has_no_chance():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf])
    for u in (0.0, 1e-300, 0.5, 1 - 2**-53):
        assert int(next_token(logits, uniform=torch.tensor(u, dtype=torch.float64))) in (1, 3)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"temperature": -0.1}, ValueError, "temperature=-0.1: takes a finite number, 0"),
        ({"temperature": float("nan")}, ValueError, "temperature=nan"),
        ({"temperature": float("inf")}, ValueError, "temperature=inf"),
        ({"temperature": "hot"}, TypeError, "temperature='hot'"),
        ({"top_k": 0}, ValueError, "top_k=0: takes how many tokens to keep, 1 or more"),
        ({"top_k": 2.5}, ValueError, "top_k=2.5"),
        ({"top_p": 0.0}, ValueError, r"top_p=0.0: takes the mass to keep, in \(0, 1\]"),
        ({"top_p": 1.1}, ValueError, "top_p=1.1"),
        ({"length": -1}, ValueError, "length=-1"),
        ({"length": 2.0}, ValueError, "length=2.0"),
        ({"prompt": "Once"}, TypeError, "takes tokens, not text"),
        ({"prompt": [1.5]}, TypeError, "a token is a whole number, got 1.5"),
        ({"prompt": [13]}, ValueError, "token 13 is not in the vocabulary, 0 … 12"),
        ({"prompt": [[1], [-1]]}, ValueError, "token -1 is not in the vocabulary"),
        ({"prompt": [], "start": 99}, ValueError, "token 99"),
        ({"stop": 13}, ValueError, "token 13"),
        ({"stop": [[]]}, ValueError, "empty stop"),
        ({"stop": ""}, ValueError, "empty stop"),
        ({"window": 0}, ValueError, "window=0"),
        ({"hop": 0}, ValueError, "hop=0"),
        ({"hop": 11}, ValueError, "hop=11.*window of 10"),
        ({"seed": [1, 2]}, ValueError, "2 seeds for 1 prompts"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said(wrong, error, words):
    options = {"prompt": [1], "length": 3, **wrong}
    with pytest.raises(error, match=words):
        gpt().generate(options.pop("prompt"), options.pop("length"), **options)


def test_a_model_that_diverged_says_so():
    model = gpt()
    torch.nn.init.constant_(model.norm.weight, torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        model.generate([1], 3)
