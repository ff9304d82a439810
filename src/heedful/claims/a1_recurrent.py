"""A1: h_t = σ(W x_t + U h_{t−1}), y_t = V h_t, L = Σ_t ‖z_t − y_t‖², and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..nn import ElmanRNN
from .claim import claim
from .documents import A
from .evidence import at_least, at_most, curve, note, same
from .trace import edges
from .unrolled import draw_unrolled


def _sizes(draw):
    """Steps, samples, and one width for inputs, states and outputs, so that a misplaced matrix still fits."""
    return draw.integer(2, 8), draw.integer(1, 5), draw.integer(2, 7)


class Recurrent:
    """The net of the question with everything it computes, and autograd's gradients of L."""

    def __init__(self, draw, steps: int, samples: int, width: int, **options):
        self.layer = ElmanRNN(width, width, activation="sigmoid", bias=False, **options).double()
        weights: Any = self.layer.layers[0]
        self.W, self.U = weights.W_x, weights.W_h
        self.V = draw.normal(width, width).requires_grad_()
        self.x, self.z = draw.normal(samples, steps, width), draw.normal(samples, steps, width)
        self.nudge = torch.zeros(1, samples, steps, width, dtype=torch.float64, requires_grad=True)
        self.h, _ = self.layer(self.x, nudge=self.nudge)
        self.y = self.h @ self.V.T
        self.L = (self.z - self.y).square().sum()
        wanted = (self.nudge, self.W, self.U, self.V)
        self.gradient, self.grad_W, self.grad_U, self.grad_V = torch.autograd.grad(self.L, wanted)
        self.gradient = self.gradient[0]  # ∇h_t L, (samples, steps, width)

    def jacobian(self, sample: int, t: int) -> Tensor:
        """∂h_{t+1}/∂h_t by automatic differentiation of one step."""
        x = self.x[sample, t + 1]
        return torch.func.jacrev(lambda h: torch.sigmoid(self.W @ x + self.U @ h))(self.h[sample, t].detach())

    def direct(self, sample: int, t: int) -> Tensor:
        """∇_{h_t} L_t by automatic differentiation of one term of the loss."""
        z = self.z[sample, t]
        return torch.func.grad(lambda h: (z - self.V @ h).square().sum())(self.h[sample, t].detach())


UNROLLED = {
    *((f"x{t}", f"h{t}", "W") for t in (1, 2, 3)),
    *((f"h{t}", f"h{t + 1}", "U") for t in (0, 1, 2)),
    *((f"h{t}", f"y{t}", "V") for t in (1, 2, 3)),
    *((f"y{t}", "L", "") for t in (1, 2, 3)),
}


@claim(
    "A1.1",
    A,
    "Unrolled for three steps, x_t enters h_t through W, h_{t−1} enters h_t through U, h_t enters y_t "
    "through V, and every y_t enters the loss.",
    stated="a drawing of x, h, y and L over three steps with edges W, U, V",
    draw=draw_unrolled,
)
def unrolled_graph(draw, *, layer=ElmanRNN):
    _, samples, width = _sizes(draw)
    net = layer(width, width, activation="sigmoid", bias=False).double()
    W, U, V = net.layers[0].W_x, net.layers[0].W_h, draw.normal(width, width).requires_grad_()
    state = draw.normal(1, samples, width).requires_grad_()
    named, loss = {"h0": state}, torch.zeros(())
    for t in (1, 2, 3):
        x = draw.normal(samples, 1, width).requires_grad_()
        h, state = net.step(x, state)
        h = h[:, 0]
        state = h.unsqueeze(0)
        y = F.linear(h, V)
        loss = loss + (draw.normal(samples, width) - y).square().sum()
        named |= {f"x{t}": x, f"h{t}": h, f"y{t}": y}
    found = edges(named | {"L": loss}, {"W": W, "U": U, "V": V})
    yield at_most("edges of the trace missing or too many in the drawing", len(found ^ UNROLLED), 0)
    yield at_least("edges in the trace", len(found), 12)
    yield note(
        "trace",
        ", ".join(f"{a}→{b}" + (f" ({w})" if w else "") for a, b, w in sorted(found)),
        edges=sorted(found),
    )


def stated_expansion(net: Recurrent, sample: int, t: int) -> Tensor:
    h = net.h[sample, t + 1]
    return net.W.T @ ((1 - h * h) * net.gradient[sample, t + 1]) + net.direct(sample, t)


def right_expansion(net: Recurrent, sample: int, t: int) -> Tensor:
    h = net.h[sample, t + 1]
    return net.U.T @ (h * (1 - h) * net.gradient[sample, t + 1]) + net.direct(sample, t)


def recursion(net: Recurrent, sample: int, t: int) -> Tensor:
    return net.jacobian(sample, t).T @ net.gradient[sample, t + 1] + net.direct(sample, t)


@claim(
    "A1.2",
    A,
    "∇h_t L is what comes back from h_{t+1} through the Jacobian of a step, plus ∇h_t of L_t.",
    stated="∇h_t L = (∂h_{t+1}/∂h_t)ᵀ ∇h_{t+1} L + ∇h_t L_t = Wᵀ diag(1 − h²_{t+1}) ∇h_{t+1} L + ∇h_t L_t",
    corrected="The recursion holds; written out it is Uᵀ diag(h_{t+1} ⊙ (1 − h_{t+1})) ∇h_{t+1} L + ∇h_t "
    "L_t: U carries time, not W, and 1 − h² is the slope of tanh, not of the sigmoid.",
)
def state_gradients(draw, *, recursion=recursion, expansion=stated_expansion, instead=right_expansion):
    for _ in range(4):
        steps, samples, width = _sizes(draw)
        net = Recurrent(draw, steps, samples, width)
        n, t = draw.integer(0, samples), draw.integer(0, steps - 1)
        truth = net.gradient[n, t]
        yield same("recursion against autograd", recursion(net, n, t), truth)
        yield same("expansion as printed against autograd", expansion(net, n, t), truth, role="detail")
        yield same("Uᵀ diag(h(1 − h)) against autograd", instead(net, n, t), truth, role="corrected")


def stated_direct(net: Recurrent, sample: int, t: int) -> Tensor:
    return 2 * net.V @ (net.z[sample, t] - net.V @ net.h[sample, t])


def right_direct(net: Recurrent, sample: int, t: int) -> Tensor:
    return -2 * net.V.T @ (net.z[sample, t] - net.V @ net.h[sample, t])


def stated_jacobian(net: Recurrent, sample: int, t: int) -> Tensor:
    h = net.h[sample, t + 1]
    return (h * (1 - h)).diag() @ net.U


@claim(
    "A1.3",
    A,
    "The loss at step t pulls on h_t by 2V(z_t − V h_t), and a step has the Jacobian σ'(·)U.",
    stated="∇h_t L_t = 2V Σ(z − V h);  ∂h_{t+1}/∂h_t = σ'(W x_{t+1} + U h_t) U",
    corrected="∇h_t L_t = −2Vᵀ(z_t − V h_t): the sign and the transpose were lost. The Jacobian is "
    "diag(σ'(·)) U.",
)
def pieces_of_the_gradient(draw, *, direct=stated_direct, instead=right_direct, jacobian=stated_jacobian):
    for _ in range(4):
        steps, samples, width = _sizes(draw)
        net = Recurrent(draw, steps, samples, width)
        n, t = draw.integer(0, samples), draw.integer(0, steps - 1)
        yield same("2V(z − V h) against autograd", direct(net, n, t), net.direct(n, t))
        yield same("diag(σ')U against autograd", jacobian(net, n, t), net.jacobian(n, t))
        yield same("−2Vᵀ(z − V h) against autograd", instead(net, n, t), net.direct(n, t), role="corrected")


def sums_over_time(net: Recurrent) -> tuple[Tensor, Tensor]:
    """∇W = Σ_t (∇h_t ⊙ σ') x_tᵀ and ∇U = Σ_t (∇h_t ⊙ σ') h_{t−1}ᵀ, term by term."""
    delta = net.gradient * net.h * (1 - net.h)
    grad_W, grad_U = torch.zeros_like(net.W), torch.zeros_like(net.U)
    for t in range(net.x.shape[1]):
        grad_W = grad_W + delta[:, t].T @ net.x[:, t]
        if t > 0:
            grad_U = grad_U + delta[:, t].T @ net.h[:, t - 1]
    return grad_W, grad_U


@claim(
    "A1.4",
    A,
    "The gradients of W and U are sums over time of (∂L/∂h_t)·σ'·input.",
    stated="∇W L = Σ_t (∇h_t L ⊙ σ') x_tᵀ,  ∇U L = Σ_t (∇h_t L ⊙ σ') h_{t−1}ᵀ",
)
def weight_gradients(draw, *, sums=sums_over_time, backward="by hand"):
    for _ in range(5):
        steps, samples, width = _sizes(draw)
        net = Recurrent(draw, steps, samples, width)
        grad_W, grad_U = sums(net)
        yield same("∇W as a sum against autograd", grad_W, net.grad_W)
        yield same("∇U as a sum against autograd", grad_U, net.grad_U)
        inputs, hidden, layers = draw.integer(1, 6), draw.integer(1, 7), draw.integer(1, 4)
        rnn = ElmanRNN(inputs, hidden, layers, activation="sigmoid").double()
        x, e = draw.normal(samples, steps, inputs), draw.normal(samples, steps, hidden)
        by_autograd = torch.autograd.grad((rnn(x)[0] * e).sum(), list(rnn.parameters()))
        rnn.backward = backward
        by_hand = torch.autograd.grad((rnn(x)[0] * e).sum(), list(rnn.parameters()))
        flat = [torch.cat([g.flatten() for g in each]) for each in (by_hand, by_autograd)]
        yield same("a layer's backward written by hand against autograd", *flat)


LAG, LENGTH = 3, 8


def train_on_a_lag(k: int, seed: int) -> float:
    """A net of 12 units asked for the bit of three steps ago; gradients go k steps back. Accuracy, 0 to 1."""
    torch.manual_seed(seed)
    rnn = ElmanRNN(1, 12, truncate=k)
    with torch.no_grad():
        weights: Any = rnn.layers[0]
        weights.W_h.mul_(0.2)  # or a random net would remember a little without being taught to
    head = torch.nn.Linear(12, 1)
    parameters = [*rnn.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.03)
    generator = torch.Generator().manual_seed(seed)
    for step in range(201):
        bits = torch.randint(2, (64 if step < 200 else 1000, LENGTH), generator=generator).float()
        logits = head(rnn((2 * bits - 1).unsqueeze(-1))[0])[..., 0]
        asked, told = logits[:, LAG:], bits[:, : LENGTH - LAG]
        if step == 200:
            return float(((asked > 0) == (told > 0.5)).float().mean())
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(asked, told).backward()
        optimizer.step()
    raise AssertionError


def truncated_gradient(rnn: ElmanRNN, x: Tensor, e: Tensor, k: int | None) -> Tensor:
    rnn.truncate = k
    found = torch.autograd.grad((rnn(x)[0] * e).sum(), list(rnn.parameters()))
    return torch.cat([g.flatten() for g in found])


@claim(
    "A1.5",
    A,
    "Truncated back-propagation through time follows the gradient k steps back and drops the rest: it is "
    "cheaper, biased, and blind to what lies further back.",
    stated="the recursion is cut after k steps",
)
def truncation(draw, *, gradient=truncated_gradient, learn=train_on_a_lag):
    steps, hidden = 12, 8
    rnn = ElmanRNN(2, hidden).double()
    x, e = draw.normal(200, steps, 2), draw.normal(200, steps, hidden) + 1
    whole = gradient(rnn, x, e, None)
    bias = [float((gradient(rnn, x, e, k) - whole).norm() / whole.norm()) for k in range(steps)]
    yield at_least("relative bias of the gradient at k = 1", bias[1], 0.02)
    yield at_most("relative bias at k = T − 1", bias[-1], 1e-10)
    yield at_most("bias at k = 6 over bias at k = 1", bias[6] / max(bias[1], 1e-300), 0.5)
    yield curve(
        "bias of the gradient",
        "‖∇_k − ∇‖/‖∇‖",
        range(steps - 1),
        bias[:-1],
        across="k, steps back",
        up="‖∇_k − ∇‖/‖∇‖",
        log="y",
    )
    asked = (1, 2, 3, 4) if draw.first else (LAG - 1, LAG)
    found = {k: learn(k, draw.seed) for k in asked}
    yield at_most(f"accuracy at lag {LAG} with k = {LAG - 1}", found[LAG - 1], 0.75)
    yield at_least(f"accuracy at lag {LAG} with k = {LAG}", found[LAG], 0.9)
    yield curve(
        "a bit remembered for three steps",
        "accuracy",
        list(found),
        list(found.values()),
        across="k, steps back",
        up="accuracy",
    )
