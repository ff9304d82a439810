"""Recurrent layers: torch's numbers, one derivation by autograd and by hand, and truncation as defined."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from heedful.nn import GRU, LSTM, ElmanRNN
from heedful.nn.through_time import ACTIVATIONS

double = torch.float64
both = pytest.mark.parametrize("backward", ["autograd", "by hand"])


def any_net(draw: random.Random, **options):
    """A net, an input and a state to start from, of random sizes."""
    inputs, hidden, layers = draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 3)
    batch, steps = draw.randint(1, 4), draw.randint(1, 9)
    options = {
        "activation": draw.choice(list(ACTIVATIONS)),
        "bias": draw.random() < 0.7,
        "truncate": draw.choice([None, *range(steps + 2)]),
        **options,
    }
    rnn = ElmanRNN(inputs, hidden, layers, **options).to(double)
    x = torch.randn(batch, steps, inputs, dtype=double)
    return rnn, x, torch.randn(layers, batch, hidden, dtype=double)


def twin(rnn, **changed):
    """The same weights with other options."""
    options = {"activation": rnn.activation, "backward": rnn.backward, "truncate": rnn.truncate, **changed}
    bias = rnn.layers[0].b is not None
    other = ElmanRNN(rnn.inputs, rnn.hidden, len(rnn.layers), bias=bias, **options).to(double)
    other.load_state_dict(rnn.state_dict())
    return other


def gradients(rnn, x, start, weigh):
    """Outputs, and gradients of a random loss over both with respect to all there is."""
    x, start = x.clone().requires_grad_(), start.clone().requires_grad_()
    nudge = torch.zeros(len(rnn.layers), *x.shape[:2], rnn.hidden, dtype=x.dtype, requires_grad=True)
    states, last = rnn(x, start, nudge=nudge)
    loss = (states * weigh[0]).sum() + (last * weigh[1]).sum()
    named = dict(rnn.named_parameters())
    found = torch.autograd.grad(
        loss, [x, start, nudge, *named.values()], allow_unused=True, materialize_grads=True
    )
    return {"states": states, "last": last} | dict(zip(["x", "start", "nudge", *named], found, strict=True))


def weights_of_a_loss(rnn, x):
    return torch.randn(*x.shape[:2], rnn.hidden, dtype=double), torch.randn(
        len(rnn.layers), x.shape[0], rnn.hidden, dtype=double
    )


@pytest.mark.parametrize("trial", range(40))
def test_by_hand_equals_autograd(trial, seed):
    rnn, x, start = any_net(random.Random(seed + trial))
    weigh = weights_of_a_loss(rnn, x)
    torch.testing.assert_close(
        gradients(twin(rnn, backward="by hand"), x, start, weigh),
        gradients(twin(rnn, backward="autograd"), x, start, weigh),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("trial", range(10))
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@both
def test_equals_torch(backward, activation, trial, seed):
    own, x, start = any_net(
        random.Random(seed + trial), activation=activation, backward=backward, truncate=None
    )
    bias = own.layers[0].b is not None
    theirs = nn.RNN(own.inputs, own.hidden, len(own.layers), activation, bias=bias, batch_first=True).to(
        double
    )
    own = ElmanRNN.from_torch(theirs, backward=backward)
    weigh = weights_of_a_loss(own, x)
    found = gradients(own, x, start, weigh)
    x.requires_grad_(), start.requires_grad_()
    states, last = theirs(x, start)
    ((states * weigh[0]).sum() + (last * weigh[1]).sum()).backward()
    expected = {"states": states, "last": last, "x": x.grad, "start": start.grad}
    for number in range(len(own.layers)):
        expected[f"layers.{number}.W_x"] = getattr(theirs, f"weight_ih_l{number}").grad
        expected[f"layers.{number}.W_h"] = getattr(theirs, f"weight_hh_l{number}").grad
        if bias:
            expected[f"layers.{number}.b"] = getattr(theirs, f"bias_ih_l{number}").grad
    del found["nudge"]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "identity"])
def test_gradcheck_by_hand(activation, seed):
    rnn, x, start = any_net(random.Random(seed), activation=activation, backward="by hand", truncate=None)
    nudge = torch.randn(len(rnn.layers), *x.shape[:2], rnn.hidden, dtype=double) / 4
    names = list(dict(rnn.named_parameters()))

    def call(x, start, nudge, *parameters):
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(rnn, named, (x, start), {"nudge": nudge})

    inputs = [each.clone().detach().requires_grad_() for each in (x, start, nudge, *rnn.parameters())]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize("trial", range(10))
@both
def test_truncation_keeps_the_young_and_drops_the_old(backward, trial, seed):
    """∇h_s of L_t alone: what it is without truncation if t − s ≤ k, exactly zero if not."""
    draw = random.Random(seed + trial)
    rnn, x, start = any_net(draw, backward=backward, truncate=draw.randint(0, 6))
    x = torch.randn(x.shape[0], 8, rnn.inputs, dtype=double)
    k, t = rnn.truncate, draw.randrange(8)
    weigh = torch.randn(x.shape[0], rnn.hidden, dtype=double)

    def state_gradients(net):
        net.keep_state_gradients = True
        first = start.clone().requires_grad_()
        (net(x, first)[0][:, t] * weigh).sum().backward()
        zero = torch.zeros_like(first) if first.grad is None else first.grad
        return net.state_gradients, zero

    (cut, cut_start), (whole, whole_start) = state_gradients(rnn), state_gradients(twin(rnn, truncate=None))
    young = torch.tensor([0 <= t - s <= k for s in range(8)])
    torch.testing.assert_close(cut[:, :, young], whole[:, :, young], rtol=1e-12, atol=1e-12)
    assert (cut[:, :, ~young] == 0).all()
    if t + 1 <= k:  # the state before the first step is t + 1 steps back
        torch.testing.assert_close(cut_start, whole_start, rtol=1e-12, atol=1e-12)
    else:
        assert (cut_start == 0).all()


@pytest.mark.parametrize("trial", range(5))
@both
def test_truncated_gradient_of_weights_is_its_definition(backward, trial, seed):
    """Σ_t Σ_{t−k ≤ s ≤ t} of what L_t says of the weights as used at step s."""
    draw = random.Random(seed + trial)
    rnn, x, start = any_net(draw, backward=backward)
    k = rnn.truncate = draw.randint(0, x.shape[1])
    weigh = weights_of_a_loss(rnn, x)
    found = gradients(rnn, x, start, (weigh[0], 0 * weigh[1]))
    phi = ACTIVATIONS[rnn.activation][0]
    expected = {name: torch.zeros_like(value) for name, value in rnn.named_parameters()}
    for t in range(x.shape[1]):
        below, used = list(x.unbind(1)), []  # each step with weights of its own
        for number, layer in enumerate(rnn.layers):
            h, states = start[number], []
            for s, each in enumerate(below):
                own = {name: value.detach().requires_grad_() for name, value in layer.named_parameters()}
                used += [(f"layers.{number}.{name}", s, value) for name, value in own.items()]
                h = phi(each @ own["W_x"].T + h @ own["W_h"].T + own.get("b", 0))
                states.append(h)
            below = states
        loss = (below[t] * weigh[0][:, t]).sum()
        each = torch.autograd.grad(
            loss, [value for *_, value in used], allow_unused=True, materialize_grads=True
        )
        for (name, s, _), gradient in zip(used, each, strict=True):
            if 0 <= t - s <= k:
                expected[name] += gradient
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("trial", range(5))
@both
def test_the_last_state_alone_has_the_same_gradient(backward, trial, seed):
    draw = random.Random(seed + trial)
    rnn, x, start = any_net(draw, backward=backward, truncate=draw.randint(0, 9))
    x = torch.randn(x.shape[0], 8, rnn.inputs, dtype=double)
    weigh = torch.randn(x.shape[0], rnn.hidden, dtype=double)
    found = []
    for last in (lambda x, first: rnn(x, first)[0][:, -1], rnn.last):
        leaves = [each.clone().requires_grad_() for each in (x, start)]
        state = last(*leaves)
        gradient = torch.autograd.grad(
            (state * weigh).sum(), [*leaves, *rnn.parameters()], allow_unused=True, materialize_grads=True
        )
        found.append([state.detach(), *gradient])
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


@both
def test_truncation_beyond_the_beginning_is_none(backward, seed):
    rnn, x, start = any_net(random.Random(seed), backward=backward, truncate=None)
    weigh = weights_of_a_loss(rnn, x)
    whole = gradients(rnn, x, start, weigh)
    for k in (x.shape[1], x.shape[1] + 5):
        torch.testing.assert_close(gradients(twin(rnn, truncate=k), x, start, weigh), whole)


@both
def test_state_gradients_obey_the_recursion(backward, seed):
    """∇h_t = e_t + Uᵀ(h_{t+1} ⊙ (1 − h_{t+1}) ⊙ ∇h_{t+1}) for the sigmoid net with loss Σ‖z_t − V h_t‖²."""
    rnn = ElmanRNN(3, 4, activation="sigmoid", bias=False, backward=backward, keep_state_gradients=True)
    rnn = rnn.to(double)
    x, z = torch.randn(2, 6, 3, dtype=double), torch.randn(2, 6, 5, dtype=double)
    V, U = torch.randn(5, 4, dtype=double), rnn.layers[0].W_h
    h, _ = rnn(x)
    (z - h @ V.T).square().sum().backward()
    e = -2 * (z - h @ V.T) @ V
    found = rnn.state_gradients[0]
    torch.testing.assert_close(found[:, -1], e[:, -1])
    for t in range(5):
        later = h[:, t + 1] * (1 - h[:, t + 1]) * found[:, t + 1]
        torch.testing.assert_close(found[:, t], e[:, t] + later @ U)


@both
def test_state_gradients_are_those_of_the_last_pass(backward, seed):
    rnn = ElmanRNN(2, 3, backward=backward, keep_state_gradients=True)
    assert rnn.state_gradients is None
    x = torch.randn(1, 4, 2)
    for scale in (1.0, 2.0):
        states, _ = rnn(x)
        assert rnn.state_gradients is None
        (scale * states[:, -1]).sum().backward()
        torch.testing.assert_close(rnn.state_gradients[0, :, -1], torch.full((1, 3), scale))
    with torch.no_grad():
        rnn(x)
    assert rnn.state_gradients is not None


@pytest.mark.parametrize("make", [ElmanRNN, LSTM, GRU])
def test_pieces_make_the_whole(make, seed):
    rnn, x = make(3, 4, 2).to(double), torch.randn(2, 9, 3, dtype=double)
    whole, last = rnn(x)
    state, pieces = None, []
    for piece in x.split([1, 4, 2, 2], 1):
        states, state = rnn.step(piece, state)
        pieces.append(states)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    torch.testing.assert_close(state, last)


@both
@pytest.mark.parametrize("truncate", [None, 2])
def test_stacks_of_models(backward, truncate, seed):
    """Many nets at once by torch.func: as one after the other."""
    x = torch.randn(2, 5, 3, dtype=double)
    nets = [ElmanRNN(3, 4, 2, backward=backward, truncate=truncate).to(double) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(nets)

    def loss(parameters, x):
        return torch.func.functional_call(nets[0], parameters, (x,))[0].square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (0, None))(parameters, x)
    for number, net in enumerate(nets):
        net(x)[0].square().sum().backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(found[name][number], parameter.grad)


@both
@pytest.mark.parametrize("truncate", [None, 2])
def test_compiles_in_training(backward, truncate, seed):
    rnn, x = ElmanRNN(3, 4, 2, backward=backward, truncate=truncate), torch.randn(2, 5, 3)
    torch._dynamo.reset()
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(rnn(x)[0].square().sum(), list(rnn.parameters()))
    found = torch.autograd.grad(compiled(x)[0].square().sum(), list(rnn.parameters()))
    torch.testing.assert_close(found, expected)


@both
def test_autocast(backward, seed):
    rnn, x = ElmanRNN(3, 4, 2, backward=backward), torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = rnn(x)
        states.float().square().sum().backward()
    torch.testing.assert_close(states.float(), rnn(x)[0], rtol=0.05, atol=0.05)
    assert all(parameter.grad.dtype == torch.float32 for parameter in rnn.parameters())


def test_lstm_and_gru_are_torchs(seed):
    x = torch.randn(2, 5, 3)
    for own, theirs in ((LSTM, nn.LSTM), (GRU, nn.GRU)):
        a, b = own(3, 4, 2), theirs(3, 4, 2, batch_first=True)
        a.load_state_dict(b.state_dict())
        torch.testing.assert_close(a(x), b(x))


@pytest.mark.parametrize(
    "options, says",
    [
        ({"activation": "tanhh"}, r"activation='tanhh'.*did you mean 'tanh'\?"),
        ({"backward": "hand"}, r"backward='hand'.*'autograd', 'by hand'"),
        ({"truncate": -1}, r"truncate=-1.*0 or more"),
        ({"truncate": 1.5}, r"truncate=1.5.*whole number"),
        ({"layers": 0}, r"layers=0.*1 or more"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        ElmanRNN(2, 3, **options)


def test_wrong_shapes_are_named():
    rnn = ElmanRNN(2, 3)
    for shape in [(4, 2), (1, 4, 3), (1, 0, 2)]:
        with pytest.raises(ValueError, match=r"takes \(N, T, 2\)"):
            rnn(torch.randn(shape))
    with pytest.raises(ValueError, match=r"takes \(layers, N, hidden\), \(1, 5, 3\)"):
        rnn(torch.randn(5, 4, 2), torch.randn(1, 4, 3))
    with pytest.raises(ValueError, match="one direction"):
        ElmanRNN.from_torch(nn.RNN(2, 3, bidirectional=True))
