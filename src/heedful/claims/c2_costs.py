"""C2, first half: what attention costs, how far it sees, what heads and positions do."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from ..attention import Window, attend
from ..attention.weights import weigh
from ..nn import Attention, TransformerBlock
from ..probes import receptive_field
from .claim import claim
from .costs import flops, memory, over, plain_attention, triple
from .documents import C
from .evidence import at_least, at_most, curve, exponent, mean, note, same

LENGTHS = (64, 128, 256, 512, 1024, 2048)


def cost_of_attention(n: int) -> float:
    q, k, v = triple(n, 16)
    return flops(lambda: plain_attention(q, k, v))


@claim(
    "C2.1",
    C,
    "The cost of attention grows exponentially with the length.",
    stated="n² is exponential",
    corrected="It grows quadratically: twice the length, four times the cost, at every length.",
)
def not_exponential(draw, *, cost=cost_of_attention):
    found = [cost(n) for n in LENGTHS]
    local = [math.log2(b / a) for a, b in itertools.pairwise(found)]  # per doubling
    yield at_least(
        "exponent at the longest lengths over at the shortest (exponential: 16 or more)",
        local[-1] / local[0],
        8,
    )
    yield exponent("attention", LENGTHS, found, equals=2, within=0.05, unit="FLOPs", role="corrected")


def windowed(n: int, width: int) -> float:
    q, k, v = triple(n, 8)
    return flops(lambda: attend(q, k, v, neighbors=Window(width), strategy="banded"))


@claim("C2.2", C, "Attention in a window of w costs O(nw).", stated="O(nw)")
def window_cost(draw, *, cost=windowed):
    yield from _window_by_mask(draw)
    if not draw.first:
        return
    lengths, widths = (2048, 4096, 8192, 16384, 32768), (64, 128, 256, 512, 1024)
    yield exponent(
        "in n, w = 64", lengths, [cost(n, 64) for n in lengths], equals=1, within=0.1, unit="FLOPs"
    )
    yield exponent(
        "in w, n = 16384",
        widths,
        [cost(16384, w) for w in widths],
        equals=1,
        within=0.15,
        unit="FLOPs",
        size="window",
    )


def _window_by_mask(draw):
    w = draw.integer(1, 20)
    n = draw.integer(4 * w + 4, 120)
    q, k, v = draw.normal(n, 3), draw.normal(n, 3), draw.normal(n, 2)
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= w
    literal = torch.softmax((q @ k.T / 3**0.5).masked_fill(~near, -torch.inf), 1) @ v
    yield same("the window against a mask", attend(q, k, v, neighbors=Window(w), strategy="banded"), literal)


class _Seen(nn.Module):
    """One layer of attention over (batch, channels, length), for the probe."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = Attention(width, heads=1).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mT).mT


def convolutions(width: int, layers: int) -> nn.Module:
    return nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Conv1d(width, width, 3, padding=1), nn.Tanh()))
    ).double()


@claim(
    "C2.3",
    C,
    "A convolution sees its surroundings, which widen layer by layer; attention sees everything at once.",
    stated="local and growing against global",
)
def receptive_fields(draw, *, attention=_Seen):
    length, width = 33, 4
    x = draw.normal(1, width, length)
    seen = {}
    for layers in (1, 2, 3, 5):
        field = receptive_field(convolutions(width, layers), x, at=(length // 2,))
        seen[layers] = int((field > 0).sum())
        yield same(f"places seen by {layers} convolutions of 3", seen[layers], 2 * layers + 1)
    yield same(
        "places seen by one layer of attention",
        int((receptive_field(attention(width), x, at=(length // 2,)) > 0).sum()),
        length,
    )
    yield curve(
        "places that reach one output",
        "convolutions of 3",
        list(seen),
        list(seen.values()),
        across="layers",
        up="places",
    )
    yield curve(
        "places that reach one output",
        "attention",
        list(seen),
        [length] * len(seen),
        across="layers",
        up="places",
    )


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    return (q * k).sum(-1) / q.shape[-1] ** 0.5


@claim("C2.4", C, "Scores divided by √d have variance σ⁴.", stated="Var(qᵀk/√d) = σ⁴")
def score_variance(draw, *, scores=scaled_scores):
    for _ in range(3):
        d, std = draw.integer(2, 65), float(draw.uniform(1, low=0.5, high=2.0))
        found = scores(draw.normal(40_000, d, std=std), draw.normal(40_000, d, std=std))
        yield mean("Var(q·k/√d) over σ⁴", found.square() / std**4, equals=1.0, within=0.1)


def mixing(layer: Attention, x: Tensor) -> Tensor:
    """out = Σ_h A_h x M_h: the operator on x as a matrix whose rank is the number of patterns A_h."""
    q, k, _ = layer.project(x)
    A = weigh(q, k)  # (heads, n, n)
    d, width = layer.dim, layer.head_dim
    W_v = layer.query_key_value.weight[2 * d :].view(layer.heads, width, d)
    W_o = layer.output.weight.view(d, layer.heads, width)
    M = torch.einsum("hwd,ohw->hdo", W_v, W_o)
    return torch.einsum("hij,hdo->ijdo", A, M).flatten(0, 1).flatten(1)  # (n², d²)


def rank(matrix: Tensor) -> int:
    values = torch.linalg.svdvals(matrix)
    return int((values > 1e-9 * values[0]).sum())


@claim(
    "C2.5",
    C,
    "Several heads raise the rank the attention output can have.",
    stated="more heads, higher rank",
    corrected="One head's output has full rank already, min(n, d); heads do not raise it (and narrow the "
    "scores of each to rank d/h). What they raise is how many patterns of listening are mixed: the "
    "operator x → Σ_h A_h x M_h is a sum of h products instead of one.",
)
def heads_and_rank(draw, *, layer=Attention):
    n, d = 12, 8
    x = draw.normal(n, d)
    outs, mixes, scores = {}, {}, {}
    for heads in (1, 2, 4):
        one = layer(d, heads, bias=False).double()
        with torch.no_grad():
            outs[heads], mixes[heads] = rank(one(x)), rank(mixing(one, x))
            q, k, _ = one.project(x)
            scores[heads] = rank((q @ k.mT)[0])
    yield at_least("rank of the output, 4 heads less 1, at equal cost", outs[4] - outs[1], 1)
    yield same("rank of the output with one head", outs[1], min(n, d), role="corrected")
    for heads in (1, 2, 4):
        yield same(f"patterns mixed by {heads} heads", mixes[heads], heads, role="corrected")
        yield same(f"rank of the scores of one of {heads} heads", scores[heads], d // heads, role="corrected")


def encoder(dim: int, layers: int, neighbors: str) -> nn.Module:
    blocks = [TransformerBlock(dim, heads=2, neighbors=neighbors) for _ in range(layers)]
    return nn.Sequential(*blocks).double().eval()


@claim(
    "C2.6",
    C,
    "Without positions a transformer cannot tell word orders apart.",
    stated="it cannot",
    corrected="An unmasked encoder cannot: permute the words and the outputs are permuted with them. A "
    "causal decoder can, from its second layer on, because whom each word may hear depends on where it "
    "stands.",
)
def word_order(draw, *, encoder=encoder):
    dim, length = 8, draw.integer(4, 12)
    x, order = draw.normal(length, dim), draw.order(length)
    while torch.equal(order[:-1], torch.arange(length - 1)):
        order = draw.order(length)
    with torch.no_grad():
        both = encoder(dim, 2, "everyone")
        yield same("encoder: f(permuted) against permuted f", both(x[order]), both(x)[order])
        causal = encoder(dim, 2, "causal")
        yield same(
            "causal decoder: f(permuted) against permuted f",
            causal(x[order]),
            causal(x)[order],
            role="detail",
        )
        before = torch.cat([draw.order(length - 1), torch.tensor([length - 1])])
        while torch.equal(before, torch.arange(length)):
            before = torch.cat([draw.order(length - 1), torch.tensor([length - 1])])
        one, two = encoder(dim, 1, "causal"), causal
        gap = [float((net(x[before])[-1] - net(x)[-1]).abs().max()) for net in (one, two)]
    yield at_most(
        "last word after the others are permuted, one causal layer: change", gap[0], 1e-10, role="corrected"
    )
    yield at_least("the same, two causal layers: change", gap[1], 1e-5, role="corrected")


@claim("C2.9", C, "Attention by tiles saves memory.", stated="N² becomes N")
def tiles(draw, *, plain=plain_attention, strategy="fused"):
    q, k, v = draw.normal(200, 8), draw.normal(200, 8), draw.normal(200, 5)
    yield same("the same output", attend(q, k, v, strategy=strategy), plain_attention(q / 8**0.5, k, v))
    if not draw.first:
        return
    lengths, long = (256, 512, 1024, 1536, 2048), (1024, 2048, 2560, 3072, 4096)

    def of(way, sizes):
        def at(n):
            q, k, v = triple(n, 16)
            return lambda: way(q, k, v)

        return over(sizes, memory, at)

    held = of(plain, lengths), of(lambda q, k, v: attend(q, k, v, strategy=strategy), long)
    yield exponent("all pairs at once", lengths, held[0], equals=2, within=0.1, unit="bytes held")
    yield exponent("by tiles", long, held[1], most=1, within=0.15, unit="bytes held")
    yield note("bytes held at 2048, all pairs over tiles", held[0][-1] / held[1][1])
