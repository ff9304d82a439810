"""E1, second half: what a transformer's parts do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..nn import LSTM, Attention, ElmanRNN, FeedForward, LayerNorm, LearnedPositions
from .claim import claim
from .documents import E
from .evidence import at_least, at_most, curve, note, same
from .studies import judged

LAGS = (1, 2, 4, 8, 16, 32)


def reader(kind: str, width: int, length: int) -> nn.Module:
    """From (N, T, width) to states (N, T, width): a recurrent net, an LSTM, or one layer of attention."""

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = LearnedPositions(length, width) if kind == "transformer" else nn.Identity()
            make = {"rnn": ElmanRNN, "lstm": LSTM}
            self.layer = Attention(width, heads=2) if kind == "transformer" else make[kind](width, width)

        def forward(self, x: Tensor) -> Tensor:
            x = self.places(x)
            return x + self.layer(x) if kind == "transformer" else self.layer(x)[0]

    return Reads()


def gradient_by_lag(kind: str, draw, length: int = 40, width: int = 16) -> list[float]:
    """‖∂h_T/∂x_{T−lag}‖ of a net as it is initialised."""
    torch.manual_seed(draw.seed)
    net = reader(kind, width, length).double()
    x = draw.normal(4, length, width).requires_grad_()
    weights = draw.normal(4, width)
    (found,) = torch.autograd.grad((net(x)[:, -1] * weights).sum(), x)
    return [float(found[:, -1 - lag].norm()) for lag in LAGS]


@claim(
    "E1.8",
    E,
    "Transformers keep long dependencies where RNNs and LSTMs fade.",
    stated="gradients fade with distance in RNN and LSTM, not in a transformer",
)
def dependencies(draw, *, gradients=gradient_by_lag, results=None):
    found = {kind: gradients(kind, draw) for kind in ("rnn", "lstm", "transformer")}
    for kind, words in (("rnn", "RNN"), ("lstm", "LSTM")):
        yield at_most(f"{words}: gradient at lag 32 over lag 1", found[kind][-1] / found[kind][0], 1e-3)
    yield at_least("transformer: the same", found["transformer"][-1] / found["transformer"][0], 0.2)
    if draw.first:
        study = judged("memory", draw.runs) if results is None else results
        lag = max(study.values("lag"))
        right = {kind: study.of(model=kind, lag=lag)()("test") for kind in ("rnn", "lstm", "transformer")}
        yield note("judged", study.about)
        yield at_least(f"a symbol recalled after {lag} steps, transformer, %", right["transformer"], 50)
        for kind, words in (("rnn", "RNN"), ("lstm", "LSTM")):
            yield at_most(f"the same, {words}, % (chance 12.5)", right[kind], 35)
    for kind, gradient in found.items():
        yield curve(
            "what is left of the gradient",
            kind.replace("rnn", "RNN").replace("lstm", "LSTM"),
            LAGS,
            gradient,
            across="lag",
            up="‖∂h_T/∂x_{T−lag}‖",
            log="xy",
        )


@claim(
    "E1.9",
    E,
    "Each token has a feed-forward net of its own, all initialised the same.",
    stated="its own FFN for each token",
    corrected="One net, shared by all tokens, before training and after: what one token teaches it, all "
    "have learned.",
)
def one_net(draw, *, make=lambda dim, length: FeedForward(dim)):
    dim, length = draw.integer(2, 8), draw.integer(2, 7)
    net = make(dim, length).double()
    token = draw.normal(dim)
    x = token.expand(1, length, dim).clone()
    before = net(x).detach()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(x)[:, 0].square().sum().backward()  # only the first token has something to learn
    optimizer.step()
    after = net(x).detach()
    moved = float((after - before)[0, 1:].abs().max())
    yield at_most("the first token learned; change at the others", moved, 1e-12)
    yield at_least("change at the others, at least", moved, 1e-9, role="corrected")
    yield same(
        "equal tokens, after training: outputs", after[0], after[0, :1].expand(length, -1), role="corrected"
    )
    yield same(
        "weights for twice the tokens, over",
        sum(p.numel() for p in make(dim, 2 * length).parameters()) / sum(p.numel() for p in net.parameters()),
        1.0,
        role="corrected",
    )


@claim(
    "E1.10",
    E,
    "LayerNorm centres and scales each token by its own mean and deviation, then applies a weight and a "
    "bias.",
    stated="γ (x − μ)/√(σ² + ε) + β, token by token",
)
def layer_norm(draw, *, norm=LayerNorm):
    for _ in range(3):
        n, length, d = draw.integer(1, 4), draw.integer(1, 6), draw.integer(2, 9)
        layer = norm(d).double()
        layer.weight.data, layer.bias.data = draw.normal(d), draw.normal(d)
        x = draw.normal(n, length, d)
        out = layer(x)
        for i in range(n):
            for t in range(length):
                token = x[i, t]
                spread = ((token - token.mean()) ** 2).mean()
                literal = layer.weight * (token - token.mean()) / (spread + layer.eps) ** 0.5 + layer.bias
                yield same("a token against the formula", out[i, t], literal)
        other = x.clone()
        other[:, 1:] = draw.normal(*other[:, 1:].shape)
        yield same("the first token when the others change", layer(other)[:, 0], out[:, 0])
