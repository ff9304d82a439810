"""E1, first half: how hard attention is, and what it can be made to compute."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import Relative, Softmax, Window, attend
from ..nn import Attention, Conv1d, RelativeAttention, SinusoidalPositions
from .claim import claim
from .documents import E
from .evidence import at_least, at_most, curve, exponent, note, same


def soft(q: Tensor, k: Tensor, v: Tensor, beta: float) -> Tensor:
    return attend(q, k, v, similarity=Softmax(scale=beta))


@claim(
    "E1.1",
    E,
    "β sets how hard attention is: β → ∞ picks one value, β → 0 averages all.",
    stated="one value; the average",
)
def hardness(draw, *, attention=soft):
    n, m, d = draw.integer(1, 6), draw.integer(2, 9), draw.integer(1, 5)
    q, k, v = draw.normal(n, d), draw.normal(m, d), draw.normal(m, 3)
    best = v[(q @ k.T).argmax(1)]
    yield same("β = 10⁻¹³ against the average", attention(q, k, v, 1e-13), v.mean(0).expand(n, -1))
    gap = (q @ k.T).topk(2, 1).values
    sure = 60 / float((gap[:, 0] - gap[:, 1]).min())  # e^−60 is left for the second best
    yield same("β large against the best value", attention(q, k, v, sure), best)
    betas = [0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
    weights = [attention(q[:1], k, torch.eye(m, dtype=v.dtype), beta)[0] for beta in betas]
    entropy = [
        float(-(w * w.clamp_min(1e-300).log()).sum()) / torch.tensor(float(m)).log().item() for w in weights
    ]
    yield curve(
        "from soft to hard",
        "entropy, 1 = uniform",
        betas,
        entropy,
        across="β",
        up="entropy, 1 = uniform",
        log="x",
    )


def sensitivity(gap: float, beta: float) -> float:
    """‖∂out/∂k₁‖ for two values 0 and 1 whose scores differ by `gap`."""
    q = torch.ones(1, 1, dtype=torch.float64)
    k = torch.tensor([[gap], [0.0]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    return float(torch.autograd.grad(soft(q, k, v, beta).sum(), k)[0][0].norm())


@claim(
    "E1.2",
    E,
    "A small change of a key changes the output little, whatever β.",
    stated="little, irrespective of β",
    corrected="Near a tie the sensitivity is β/4 and grows without bound. Away from ties it rises, peaks "
    "near β = 1.5/gap and then vanishes like β exp(−β·gap).",
)
def small_changes(draw, *, sensitive=sensitivity):
    betas = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]
    tie, apart = [sensitive(0.0, b) for b in betas], [sensitive(0.5, b) for b in betas]
    yield at_most("at a tie, ‖∂out/∂k‖ at β = 1024 over that at β = 1", tie[-1] / tie[0], 10.0)
    yield exponent(
        "at a tie", betas, tie, equals=1, within=0.01, unit="‖∂out/∂k‖", size="β", role="corrected"
    )
    yield same("at a tie: ‖∂out/∂k‖ against β/4", tie, [b / 4 for b in betas], role="corrected")
    yield at_most("away from ties, at β = 1024 over the peak", apart[-1] / max(apart), 1e-6, role="corrected")
    yield at_least("away from ties, the peak over β = 1", max(apart) / apart[0], 1.5, role="corrected")
    name = {"across": "β", "up": "‖∂out/∂k‖", "log": "xy"}
    yield curve("sensitivity to a key", "at a tie", betas, tie, **name)
    yield curve("sensitivity to a key", "scores 0.5 apart", betas, [max(a, 1e-18) for a in apart], **name)


@claim(
    "E1.3",
    E,
    "A very large key dominates.",
    stated="the output becomes its value",
    corrected="If its score is positive. If it is negative (the query points the other way) a large key "
    "vanishes: the output is that of the others.",
)
def large_key(draw, *, attention=soft, sign=-1.0):
    m, d = draw.integer(3, 8), draw.integer(2, 5)
    q, k, v = draw.normal(1, d), draw.normal(m, d), draw.normal(m, 3)
    rest = attention(q, k[1:], v[1:], 1.0)
    towards = q / q.norm()

    def with_first(scale: float) -> Tensor:
        first = k.clone()
        first[0] = scale * towards[0]
        return attention(q, first, v, 1.0)

    size = 1e3 / float(q.norm())
    yield same("score positive: against its value", with_first(size * 10), v[:1])
    yield same("score negative: against its value", with_first(sign * size * 10), v[:1], role="detail")
    yield same("score negative: against the others alone", with_first(-size * 10), rest, role="corrected")


def printed_formula(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """softmax((QKᵀ/√d)V)."""
    return torch.softmax((Q @ K.mT / Q.shape[-1] ** 0.5) @ V, -1)


@claim(
    "E1.4",
    E,
    "Each head computes softmax((QKᵀ/√d)V).",
    stated="softmax((QKᵀ/√d)V)",
    corrected="softmax(QKᵀ/√d)V: the softmax is of the scores, and its rows weigh the values.",
)
def softmax_of_what(draw, *, formula=printed_formula):
    for _ in range(3):
        n, d, heads = draw.integer(2, 9), draw.integer(1, 5), draw.integer(1, 4)
        layer = Attention(d * heads, heads).double()
        Q, K, V = layer.project(draw.normal(n, d * heads))
        truth = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
        yield same("as printed, against torch's attention", formula(Q, K, V), truth)
        right = torch.softmax(Q @ K.mT / d**0.5, -1) @ V
        yield same("softmax(QKᵀ/√d)V against torch's attention", right, truth, role="corrected")
        yield same("attend against torch's attention", attend(Q, K, V), truth, role="corrected")


def grouped_layer(kernel: Tensor, groups: int) -> RelativeAttention:
    """A head a group and tap: it hears one place only, and its matrix is that group's weights there."""
    outputs, each, size = kernel.shape
    inputs = each * groups
    layer = RelativeAttention(inputs, outputs, size, heads=groups * size, bias=False).double()
    taps = torch.eye(size, dtype=torch.float64).log().repeat(groups, 1)
    weight = torch.zeros(groups, size, outputs, inputs, dtype=torch.float64)
    rows = outputs // groups
    for g in range(groups):
        weight[g, :, g * rows : (g + 1) * rows, g * each : (g + 1) * each] = kernel[
            g * rows : (g + 1) * rows
        ].permute(2, 0, 1)
    layer.table.data, layer.weight.data = taps, weight.flatten(0, 1)
    return layer


@claim(
    "E1.5",
    E,
    "Multi-head attention and grouped one-dimensional convolution are alike.",
    stated="alike: each head, or group, works on its part",
)
def grouped_convolution(draw, *, make=grouped_layer):
    """With scores by position only, a multi-head layer is a grouped convolution, exactly."""
    for _ in range(3):
        groups, each, rows = draw.integer(1, 4), draw.integer(1, 4), draw.integer(1, 4)
        size = draw.choice((1, 3, 5))
        conv = Conv1d(groups * each, groups * rows, size, groups=groups, bias=False, padding="same").double()
        x = draw.normal(2, groups * each, draw.integer(6, 20))
        yield same(
            "heads by position against a grouped convolution", make(conv.weight.data, groups)(x), conv(x)
        )


def positions(length: int, dim: int) -> Tensor:
    return SinusoidalPositions(dim)(torch.zeros(length, dim, dtype=torch.float64))


@claim(
    "E1.6",
    E,
    "Of sinusoidal positions, a shift is a linear map, and similarity decays with distance.",
    stated="p_{i+s} = M_s p_i; p_i·p_j falls with |i − j|",
    corrected="The shift is a rotation, exactly. Similarity falls on average over distances, not from each "
    "to the next: it swings.",
)
def sinusoids(draw, *, table=positions):
    dim, length = 2 * draw.integer(2, 20), 128
    p = table(length, dim)
    shift = draw.integer(1, 20)
    rates = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    turn = torch.zeros(dim, dim, dtype=torch.float64)
    for m, angle in enumerate(shift * rates):
        c, s = angle.cos(), angle.sin()
        turn[2 * m : 2 * m + 2, 2 * m : 2 * m + 2] = torch.stack([torch.stack([c, s]), torch.stack([-s, c])])
    yield same("p_{i+s} against a rotation of p_i", p[shift:], p[:-shift] @ turn.T)
    yield same("the map is orthogonal", turn @ turn.T, torch.eye(dim, dtype=torch.float64))
    wide = table(length, 64)
    near = wide @ wide[0] / 32
    yield at_least(
        "similarity, mean of distances 1–8 less of 33–64", float(near[1:9].mean() - near[33:65].mean()), 0.1
    )
    rises = int((near[1:] > near[:-1] + 1e-9).sum())
    yield at_most("times it rises from one distance to the next, of 127", rises, 0, role="detail")
    yield at_least("times it rises, at least", rises, 5, role="corrected")
    yield at_most(
        "rank correlation of similarity with distance", _rank_correlation(near), -0.5, role="corrected"
    )
    yield curve(
        "similarity of positions, dim 64",
        "p_0·p_i/32",
        range(length),
        near,
        across="distance",
        up="p_0·p_i/32",
    )


def _rank_correlation(values: Tensor) -> float:
    ranks = values.argsort().argsort().double()
    places = torch.arange(len(values)).double()
    return float(torch.corrcoef(torch.stack([ranks, places]))[0, 1])


def listening_to(target: Tensor, v: Tensor) -> Tensor:
    """Hard attention by content: token i asks for the code of target[i], codes orthogonal."""
    codes = torch.eye(len(target), dtype=v.dtype)
    return attend(codes[target], codes, v, similarity=Softmax(scale=1000.0))


def printed_matrix(w: Tensor, n: int) -> Tensor:
    """The running linear layer as the text has it: only the n − 2 rows whose window fits, 3 × 5 for n = 5."""
    matrix = torch.zeros(n - 2, n, dtype=w.dtype)
    for i in range(n - 2):
        matrix[i, i : i + 3] = w
    return matrix


def same_length(w: Tensor, n: int) -> Tensor:
    """The n × n matrix of attention: at the edges, the part of the window that is there."""
    matrix = torch.zeros(n, n, dtype=w.dtype)
    for i in range(n):
        for m in (-1, 0, 1):
            if 0 <= i + m < n:
                matrix[i, i + m] = w[m + 1]
    return matrix


@claim(
    "E1.7",
    E,
    "Self-attention can be the identity, a permutation, and a running linear layer, which is a convolution.",
    stated="all three; the running layer over five tokens is printed as a 3 × 5 matrix",
    corrected="All three. The running layer over n tokens is an n × n matrix; the printed 3 × 5 one drops "
    "the edges, where attention answers with the part of the window that is there.",
)
def three_layers(draw, *, listen=listening_to, matrix=printed_matrix):
    n = 5
    v = draw.normal(n, 3)
    order = draw.order(n)
    yield same("identity", listen(torch.arange(n), v), v)
    yield same("permutation", listen(order, v), v[order])
    w = draw.uniform(3, low=0.2, high=1.0)
    blank = torch.zeros(n, 1, dtype=torch.float64)
    table = w.flip(0).log()  # entries −1, 0, +1 of i − j hear x_{i+1}, x_i, x_{i−1}
    mean = attend(
        blank, blank, v, similarity=Softmax(scale=1.0), neighbors=Window(1), position=Relative(table)
    )
    total = same_length(w, n).sum(
        1, keepdim=True
    )  # the softmax divides by what is heard; a linear layer does not
    running = mean * total
    yield same("running layer, inside: against a convolution", running[1:-1], printed_matrix(w, n) @ v)
    yield same(
        "rows of the running layer, as printed", float(len(matrix(w, n))), float(len(running)), role="detail"
    )
    yield same("running layer against its n × n matrix", running, same_length(w, n) @ v, role="corrected")
    layer = RelativeAttention(1, 1, 3, heads=1, bias=False).double()
    layer.table.data, layer.weight.data = w.log().unsqueeze(0), w.sum().view(1, 1, 1)
    column = v[:, :1].T.unsqueeze(0)
    yield same(
        "a layer of relative attention, zeros beyond the edge",
        layer(column)[0, 0],
        same_length(w, n) @ v[:, 0],
        role="corrected",
    )
    yield note("rows printed, rows of attention", f"{n - 2}, {n}")
