"""For every claim, something broken to be measured in place of the real thing: the verdict must change.

Where a statement holds, what is put in does not do what it says (a wrong sign, a wrong matrix, another
exponent). Where a statement fails, what is put in does what the text says, so that it would have to hold.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from heedful import Graph, Softmax, Window, attend
from heedful.claims import a1_recurrent as a1
from heedful.claims import a4_vision as a4
from heedful.claims import b1_autoencoders as b1
from heedful.claims import b5_kernels as b5
from heedful.claims import c1_convolution as c1
from heedful.claims import d1_attention as d1
from heedful.claims import d2_geometry as d2
from heedful.claims import e1_attention as e1
from heedful.claims.studies import Judged
from heedful.nn import BatchNorm, ElmanRNN, GraphConv, LayerNorm, moments_over


class Forgetful(ElmanRNN):
    """A net whose state never enters."""

    def step(self, x, state=None):
        return super().step(x, None)


def wrong_sums(net):
    grad_W, grad_U = a1.sums_over_time(net)
    return -grad_W, grad_U


def local_attention(x):
    return attend(x, x, x, neighbors=Window(1))


class PerSample(BatchNorm):
    """A batch norm that looks at each place by itself."""

    def forward(self, x):
        return x - x.mean(1, keepdim=True)


def table(axes, rows, about="run x, quick profile, 2 seeds"):
    return Judged(about, rows, axes)


def no_gain():
    """Autoencoders whose every code is as bad."""
    rows = {
        ("synthetic", kind, latent): {"loss": 200.0, "probe": 60.0}
        for kind in ("untrained", "vanilla")
        for latent in (5, 20)
    }
    return table(("dataset", "kind", "latent"), rows)


def accumulates_alike():
    """Batch norm that does not mind."""
    rows = {
        (norm, pieces): {"residual": 1e-15, "angle": 0.0, "size": 1.0}
        for norm in ("batch", "layer")
        for pieces in (1, 2, 4, 8, 16, 32)
    }
    return table(("norm", "pieces"), rows)


def always_falls():
    """Loops that fall whether cleared or not."""
    rows = {
        (cleared, problem): {"growth": -2.0, "accumulated": 1.0}
        for cleared in ("yes", "no")
        for problem in ("bowl", "noisy bowl", "network")
    }
    return table(("cleared", "problem"), rows)


def blind_to_height():
    rows = {("Net1", padding): {"test": 99.0, "val": 99.0} for padding in ("valid", "full")}
    return table(("net", "padding"), rows)


def rotation(upright, turned, worst, own=97.0):
    rows = {
        ("digits", "upright"): {"upright": upright, "turned": turned, "worst": worst},
        ("digits", "turned"): {"upright": own, "turned": own, "worst": own},
    }
    return table(("dataset", "training"), rows)


def chance_on_citations():
    rows = {("citations", model): {"test": 15.0} for model in ("gcn", "gat")}
    return table(("dataset", "model"), rows)


def degrades_alike():
    """Residual nets that suffer as plain ones do."""
    rows = {
        ("batch", "he", net, depth): {"train": float(depth)}
        for net in ("plain", "residual")
        for depth in (20, 56)
    }
    return table(("norm", "init", "net", "depth"), rows)


def extrapolates_alike():
    rows = {
        (position,): {f"{factor}×": 2.0 for factor in (1, 2, 4, 8)}
        for position in ("learned", "sinusoidal", "rotary", "alibi", "none")
    }
    return table(("position",), rows)


def hears_alike():
    rows = {(model, added): {"heard": 50.0} for model in ("mean", "gat") for added in (0, 8)}
    return table(("model", "added"), rows)


def writes_its_own():
    rows = {("python-docs", "characters", "nano"): {"copied": 8.0, "copied author": 8.0}}
    return table(("text", "tokens", "size"), rows)


def vits_alike():
    rows = {(net, 100): {"test": 90.0} for net in ("vit", "vit, relu", "vit, sinusoidal")}
    return table(("net", "share"), rows)


def all_remember():
    rows = {(model, 50): {"test": 100.0} for model in ("rnn", "lstm", "transformer")}
    return table(("model", "lag"), rows)


class HeightBlind:
    """A net that is right wherever the pattern stands."""

    def __init__(self, *_):
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.val = torch.rand(60, 3, 32, 32)
        self.val_labels = torch.arange(60) % 2
        self.test, self.test_labels = self.val, self.val_labels

    def accuracy(self, images, labels):
        return 100.0


class Silent(nn.Module):
    """Attention that hears only itself."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width).double()

    def forward(self, x):
        return self.layer(x.mT).mT


class RankOne(nn.Module):
    """Heads that all say the same when there is but one."""

    def __new__(cls, d, heads, bias=True):
        from heedful.nn import Attention

        layer = Attention(d, heads, bias=bias)
        if heads == 1:
            with torch.no_grad():
                layer.output.weight.copy_(torch.ones_like(layer.output.weight))
        return layer


def ordered_encoder(dim, layers, neighbors):
    from heedful.nn import SinusoidalPositions, TransformerBlock

    return nn.Sequential(SinusoidalPositions(dim), TransformerBlock(dim, heads=2)).double().eval()


class Babbler:
    """A model that writes the same new words whatever the settings."""

    book, other = "abcdefghij" * 60, "klmnopqrst" * 60

    def prompts(self, of, count=16, length=16):
        text = self.book if of == "book" else self.other
        return [text[i : i + length] for i in range(count)]

    def write(self, prompts, length=24, **options):
        return ["uvwxyz" * 4 for _ in prompts]

    def cost(self, prompts, texts):
        return 3.0


class ItsOwn(nn.Module):
    """A feed-forward net for each token."""

    def __init__(self, dim, length):
        super().__init__()
        first = nn.Linear(dim, dim)
        self.nets = nn.ModuleList([nn.Linear(dim, dim) for _ in range(length)])
        for net in self.nets:
            net.load_state_dict(first.state_dict())

    def forward(self, x):
        return torch.stack([net(x[:, t]) for t, net in enumerate(self.nets)], 1)


class Unnormed(LayerNorm):
    def forward(self, x):
        return super().forward(x - 0.5) + 0.1 * x


def falling_energy(graph, x, own, depth=24):
    return [math.exp(-n) for n in range(depth)]


def flat_gradients(kind, draw):
    return [1.0] * 6


def unmasked_sum(X, y, w, p):
    return b_ridge(X, y, w, p) + (X @ w).square().sum()


def b_ridge(X, y, w, p):
    from heedful.claims.a3_norms import ridge

    return ridge(X, y, w, p)


def drifting(X, y, start, steps=400):
    """Descent with weight that is not in the span of the rows."""
    from heedful.claims.a3_norms import descend

    return descend(X, y, start + 0.1, steps)


def shifted_moments(x, axes, **options):
    mean, variance = moments_over(x, axes, **options)
    return mean + 0.1, variance


class Tokens:
    """As much of a ViT as is asked for."""

    def embed(self, images):
        return torch.zeros(1, 17, 4)


def growing_distances(model):
    return torch.tensor([[0.3, 0.3, 0.3, 1.0], [0.6, 0.6, 0.6, 1.0], [1.0, 1.0, 1.0, 1.0]])


def skipless():
    rows = {("membranes", "same", "with"): {"pixel": 20.0}, ("membranes", "same", "without"): {"pixel": 10.0}}
    return table(("dataset", "padding", "skips"), rows)


def wrong_spread(eigenvalues, decay, k):
    return (1 - 2 * decay / eigenvalues[:k]).sqrt()


BROKEN = {
    "A1.1": {"layer": Forgetful},
    "A1.2": {"expansion": a1.right_expansion},
    "A1.3": {"direct": a1.right_direct},
    "A1.4": {"sums": wrong_sums},
    "A1.5": {
        "gradient": lambda rnn, x, e, k: a1.truncated_gradient(rnn, x, e, None),
        "learn": lambda k, seed: 1.0,
    },
    "A2.1": {"by_sum": lambda graph, h: graph.aggregate(h, "mean")},
    "A2.2": {"printed": (-0.8, 0.8)},
    "A2.3": {"complete": lambda n, self_loops=True: Graph.complete(n, self_loops=True)},
    "A2.4": {"speaker": "j"},
    "A2.5": {"layer": local_attention},
    "A3.1": {"instance": 14 / 9},
    "A3.2": {"batch_norm": PerSample},
    "A3.3": {"closed": unmasked_sum},
    "A3.4": {"descend": drifting},
    "A4": {"train": lambda seed: (Tokens(), 90.0), "probe": growing_distances},
    "B1.1": {"results": no_gain(), "probe": lambda kind, width: 60.0},
    "B1.2": {"printed": b1.right_gradients},
    "B1.3": {"basis": "eigen"},
    "B1.4": {"other": lambda W1, W2, draw: (-W1, -W2)},
    "B2.1": {"factors": (1.0, 1.0)},
    "B2.2": {"singular": wrong_spread},
    "B3.1": {"formula": lambda centre, std: float(centre.square().sum()) + len(centre) * std**2},
    "B3.2": {"formula": lambda centre, std: float(len(centre) ** 2 * std**4) + 1},
    "B3.3": {"stated": 1.0},
    "B4.1": {"similarity": Softmax(scale=0.01)},
    "B4.2": {"similarity": Softmax(scale=1.0)},
    "B5.1": {"both_signs": lambda q, k: b5.shifted_cosine(q, k) - 0.2},
    "B5.2": {"phi": lambda x: torch.cat([torch.ones_like(x[..., :1]), x, x.square()], -1)},
    "B5.3": {"tiled": "reference"},
    "B5.4": {"keep": b5.recomputed},
    "B6.1": {"results": degrades_alike()},
    "B6.2": {"results": accumulates_alike()},
    "B6.3": {"results": always_falls()},
    "C1.1": {"convolve": lambda g, h: c1.flipped(g, h.flip(0, 1))},
    "C1.2": {"results": blind_to_height()},
    "C1.3": {"net": HeightBlind},
    "C1.4": {"net": HeightBlind, "readable": lambda net, draw: 0.0},
    "C1.5": {"net": HeightBlind},
    "C1.6": {"results": rotation(98.0, 97.0, 96.0)},
    "C1.7": {"results": rotation(98.0, 40.0, 20.0, own=99.0)},
    "C2.1": {"cost": lambda n: 2.0 ** (n / 16)},
    "C2.2": {"cost": lambda n, w: float(n) ** 2},
    "C2.3": {"attention": Silent},
    "C2.4": {"scores": lambda q, k: (q * k).sum(-1)},
    "C2.5": {"layer": RankOne},
    "C2.6": {"encoder": ordered_encoder},
    "C2.7": {"results": extrapolates_alike()},
    "C2.8": {"model": lambda seed: Babbler(), "results": writes_its_own()},
    "C2.9": {"strategy": "reference"},
    "C2.10": {"model": lambda seed: Babbler()},
    "C3.1": {"what": "walks"},
    "C3.2": {"most": (2, 4, 5)},
    "C3.3": {"energy": falling_energy},
    "C3.4": {"layer": lambda i, o, bias: GraphConv(i, o, aggregate="sum", bias=bias)},
    "C3.5": {"kind": "sum"},
    "C3.6": {"accuracy": lambda layer, draw, noise: 100.0, "results": hears_alike()},
    "C3.7": {"edges": lambda nodes, edges: float(nodes) ** 2},
    "D1.1": {"net": lambda x, weights: d1.chain(x, 1.1 * weights)},
    "D1.2": {"net": lambda x, weights: d1.chain(x, weights) + d1.chain(2 * x, weights)},
    "D1.3": {"steps": lambda x, W, steps: d1.sigmoid_steps(x, 5 * W, steps)},
    "D1.4": {"cost": lambda n: float(n) ** 2},
    "D1.5": {"kernel": lambda q, k: d1.linear_kernel(q, k).square()},
    "D1.6": {"product": lambda P, V, k: d1.low_rank(P, V, max(1, k - 1)) * 0.9},
    "D1.7": {
        "make": lambda P, Q, K, k: tuple(torch.zeros(k, len(K), dtype=K.dtype) + 0.01 for _ in range(2))
    },
    "D1.8": {"table": lambda w: d1.kernel_table(w[::-1])},
    "D1.9": {"query": lambda x, beta: torch.full_like(x, beta)},
    "D2.1": {"projection": lambda draw, k, d: d2.gaussian(draw, k, d) * 2},
    "D2.2": {"vectors": lambda draw, n, delta: (n, 0.0)},
    "D3.1": {"kind": "row"},
    "D3.2": {"results": chance_on_citations()},
    "D4.1": {"results": skipless()},
    "E1.1": {"attention": lambda q, k, v, beta: e1.soft(q, k, v, 1.0)},
    "E1.2": {"sensitive": lambda gap, beta: 0.25},
    "E1.3": {"sign": 1.0},
    "E1.4": {"formula": lambda Q, K, V: attend(Q, K, V)},
    "E1.5": {"make": lambda kernel, groups: e1.grouped_layer(kernel.flip(-1) + 0.1, groups)},
    "E1.6": {"table": lambda length, dim: -torch.arange(length).double().unsqueeze(1).expand(length, dim)},
    "E1.7": {"matrix": lambda w, n: e1.same_length(w, n)},
    "E1.8": {"gradients": flat_gradients, "results": all_remember()},
    "E1.9": {"make": ItsOwn},
    "E1.10": {"norm": Unnormed},
    "E1.11": {"convolution": lambda embed, images: a4.convolved(embed, images.flip(-1))},
    "E1.12": {"vit": ("gelu", "post"), "results": vits_alike()},
}

# Where breaking makes the text right, the verdict must become "holds".
MADE_RIGHT = {
    *("A1.2", "A1.3", "A2.2", "A2.4", "A2.5", "A3.1", "A4", "B1.2", "B1.3", "B1.4", "B3.3", "B5.1", "B5.3"),
    *(
        "B5.4",
        "C1.4",
        "C1.5",
        "C2.1",
        "C2.5",
        "C2.10",
        "C3.1",
        "C3.2",
        "D1.5",
        "D1.9",
        "D3.1",
        "E1.2",
        "E1.3",
    ),
    *("E1.4", "E1.7", "E1.9", "E1.12"),
}
