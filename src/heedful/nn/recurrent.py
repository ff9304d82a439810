"""Recurrent layers, batch first: states of the top layer at every step, and of all layers after the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .checks import check_choice, check_count
from .through_time import ACTIVATIONS, nudged, unroll, unroll_by_hand, unroll_truncated

BACKWARD = ("autograd", "by hand")


class ElmanRNN(nn.Module):
    r"""h_t = φ(W_x x_t + W_h h_{t−1} + b), for t = 1 … T; a layer listens to the states of the one below.

    Takes x (N, T, inputs) and the states h_0 before it, (layers, N, hidden), zero unless given. Returns the
    states of the top layer, (N, T, hidden), and the last ones of all layers, (layers, N, hidden).

    Args:
        inputs, hidden, layers: widths of x_t and h_t, and how many such nets lie on one another.
        activation: φ, one of "tanh", "sigmoid", "relu", "identity".
        backward: "autograd", or "by hand": the recursion ∇h_t = e_t + W_hᵀ(φ' ⊙ ∇h_{t+1}), written out in
            `through_time.py`. They agree to rounding.
        truncate: k lets no gradient flow more than k steps back. What L_t says of h_s counts if t − s ≤ k,
            for every t alike, and is dropped if not. (To cut at fixed places instead, feed the pieces one
            by one and detach the states between them.) None: all the way.
        keep_state_gradients: after a backward pass, `state_gradients` is ∇h_t, (layers, N, T, hidden).

    >>> rnn = ElmanRNN(3, 5, backward="by hand", truncate=2, keep_state_gradients=True)
    >>> states, last = rnn(torch.randn(1, 7, 3))
    >>> states.shape, last.shape
    (torch.Size([1, 7, 5]), torch.Size([1, 1, 5]))
    >>> states[:, 4].sum().backward()
    >>> (rnn.state_gradients != 0).any(-1)
    tensor([[[False, False,  True,  True,  True, False, False]]])
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        layers: int = 1,
        *,
        activation: str = "tanh",
        bias: bool = True,
        backward: str = "autograd",
        truncate: int | None = None,
        keep_state_gradients: bool = False,
    ):
        super().__init__()
        check_count("ElmanRNN", inputs=inputs, hidden=hidden, layers=layers)
        check_choice("ElmanRNN", "activation", activation, ACTIVATIONS)
        check_choice("ElmanRNN", "backward", backward, BACKWARD)
        if truncate is not None:
            check_count("ElmanRNN", truncate=truncate, least=0)
        self.inputs, self.hidden, self.activation = inputs, hidden, activation
        self.backward, self.truncate, self.keep_state_gradients = backward, truncate, keep_state_gradients
        self.layers = nn.ModuleList(
            _Weights(inputs if number == 0 else hidden, hidden, bias) for number in range(layers)
        )
        self._nudge: Tensor | None = None

    def forward(
        self, x: Tensor, start: Tensor | None = None, *, nudge: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`nudge` (layers, N, T, hidden) is added to the states; the gradient of a zero nudge is ∇h_t."""
        return self._unrolled(x, start, nudge, self.truncate)

    def _unrolled(
        self, x: Tensor, start: Tensor | None, nudge: Tensor | None, truncate: int | None
    ) -> tuple[Tensor, Tensor]:
        start = self._start(x, start)
        if nudge is None and self.keep_state_gradients and torch.is_grad_enabled():
            shape = (len(self.layers), *x.shape[:2], self.hidden)
            nudge = self._nudge = start.new_zeros(shape, requires_grad=True)
        k = None if truncate is None or truncate >= x.shape[1] else truncate
        layers: list[Any] = [(layer.W_x, layer.W_h, layer.b) for layer in self.layers]
        if self.backward == "by hand":
            with torch.autocast(x.device.type, enabled=False):  # or the two passes would differ in precision
                fired = unroll_by_hand(self.activation, layers, x.to(start.dtype), start, nudge, k)
        elif k is None:
            fired = unroll(self.activation, layers, x, start, nudge)
        else:
            fired = unroll_truncated(self.activation, layers, x, start, nudge, k)
        states = nudged(fired, nudge)
        return states[-1], states[:, :, -1]

    def last(self, x: Tensor, start: Tensor | None = None) -> Tensor:
        """The top layer's last state, (N, hidden). Truncated, what lies before k steps is not recorded: the
        gradient is the same, and takes k steps instead of k rounds over all T.
        """
        k = self.truncate
        if k is None or k + 1 >= x.shape[1] or self.keep_state_gradients or not torch.is_grad_enabled():
            return self(x, start)[0][:, -1]
        with torch.no_grad():
            _, start = self(x[:, : -(k + 1)], start)
        return self._unrolled(x[:, -(k + 1) :], start, None, None)[0][:, -1]

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states at new inputs x (N, t, inputs), and the state to pass next time; None begins."""
        return self(x, state)

    @property
    def state_gradients(self) -> Tensor | None:
        return None if self._nudge is None else self._nudge.grad

    @classmethod
    def from_torch(cls, rnn: nn.RNN, **options) -> ElmanRNN:
        """The same layer as a `torch.nn.RNN`; its two biases, only ever added, become one."""
        if rnn.bidirectional or rnn.dropout:
            raise ValueError(f"ElmanRNN.from_torch: got {rnn}; takes one direction and no dropout.")
        sizes = rnn.input_size, rnn.hidden_size, rnn.num_layers
        own = cls(*sizes, activation=rnn.nonlinearity, bias=bool(rnn.bias), **options)
        with torch.no_grad():
            for layer, (W_x, W_h, *biases) in zip(own.layers, rnn.all_weights, strict=True):
                layer.W_x.data, layer.W_h.data = W_x.detach().clone(), W_h.detach().clone()
                if biases:
                    layer.b.data = biases[0] + biases[1]  # type: ignore[union-attr]
        return own

    def _start(self, x: Tensor, start: Tensor | None) -> Tensor:
        """The states to start from, once x and they are found to fit."""
        if x.dim() != 3 or x.shape[-1] != self.inputs or x.shape[1] == 0:
            raise ValueError(
                f"ElmanRNN: got an input of shape {tuple(x.shape)}; takes (N, T, {self.inputs}), T ≥ 1."
            )
        shape = (len(self.layers), x.shape[0], self.hidden)
        if start is None:
            return self.layers[0].W_h.new_zeros(shape)  # type: ignore[operator, union-attr]
        if start.shape != shape:
            raise ValueError(
                f"ElmanRNN: got start of shape {tuple(start.shape)}; takes (layers, N, hidden), {shape} here."
            )
        return start

    def extra_repr(self) -> str:
        truncate = "" if self.truncate is None else f", truncate={self.truncate}"
        return f"activation={self.activation!r}, backward={self.backward!r}{truncate}"


class _Weights(nn.Module):
    """W_x, W_h and b of one layer, drawn as torch draws them: uniform within ±1/√hidden."""

    def __init__(self, inputs: int, hidden: int, bias: bool):
        super().__init__()
        self.W_x = nn.Parameter(torch.empty(hidden, inputs))
        self.W_h = nn.Parameter(torch.empty(hidden, hidden))
        self.b = nn.Parameter(torch.empty(hidden)) if bias else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def extra_repr(self) -> str:
        return f"{self.W_x.shape[1]} → {self.W_x.shape[0]}, bias={self.b is not None}"


class LSTM(nn.LSTM):
    r"""c_t = f ⊙ c_{t−1} + i ⊙ tanh(W x_t + U h_{t−1} + b),   h_t = o ⊙ tanh(c_t),   with gates
    i, f, o = σ(W' x_t + U' h_{t−1} + b'), each with weights of its own.

    torch's, batch first. Takes x (N, T, inputs); returns the states h of the top layer, (N, T, hidden), and
    (h, c) of all layers after the last step, (layers, N, hidden) each.

    >>> states, (h, c) = LSTM(3, 5)(torch.randn(2, 7, 3))
    >>> torch.equal(states[:, -1], h[-1])
    True
    """

    def __init__(self, inputs: int, hidden: int, layers: int = 1, *, bias: bool = True):
        check_count("LSTM", inputs=inputs, hidden=hidden, layers=layers)
        super().__init__(inputs, hidden, layers, bias=bias, batch_first=True)

    def step(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None):
        """The states at new inputs x (N, t, inputs), and the state to pass next time; None begins."""
        return self(x, state)


class GRU(nn.GRU):
    r"""h_t = (1 − z) ⊙ tanh(W x_t + b + r ⊙ (U h_{t−1} + c)) + z ⊙ h_{t−1},   with gates
    r, z = σ(W' x_t + U' h_{t−1} + b'), each with weights of its own.

    torch's, batch first. Takes x (N, T, inputs); returns the states of the top layer, (N, T, hidden), and
    those of all layers after the last step, (layers, N, hidden).

    >>> states, last = GRU(3, 5)(torch.randn(2, 7, 3))
    >>> torch.equal(states[:, -1], last[-1])
    True
    """

    def __init__(self, inputs: int, hidden: int, layers: int = 1, *, bias: bool = True):
        check_count("GRU", inputs=inputs, hidden=hidden, layers=layers)
        super().__init__(inputs, hidden, layers, bias=bias, batch_first=True)

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states at new inputs x (N, t, inputs), and the state to pass next time; None begins."""
        return self(x, state)
