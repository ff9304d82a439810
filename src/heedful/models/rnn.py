"""A recurrent net over tokens or vectors: a language model, or a reader that answers at the end."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..nn import GRU, LSTM, ElmanRNN
from ..nn.checks import check_choice, check_count, check_share
from .generation import Generates
from .model import Model
from .vocabulary import cross_entropy, look_up

KINDS = ("elman", "lstm", "gru")


class RNN(Generates, Model):
    r"""y_t = V h_t + c,   h_t = recurrent(x_t, h_{t−1}),   x_t = E[token_t]

    Args:
        vocabulary: how many different tokens there are; or give `inputs`, the width of vectors x_t.
        outputs: how many numbers it predicts; as many as the vocabulary unless given.
        hidden, layers: how wide the state is, how many recurrent nets lie on one another.
        kind: "elman", "lstm" or "gru".
        predict: "each": after every token, a language model; "last": after the last, a classifier.
        embedding: width of the embedding; `hidden` unless given.
        dropout: of the embedding and of the states before the last matrix.
        activation, bias, truncate, backward: of "elman", see `ElmanRNN`; `recurrent` is that layer.

    >>> import torch
    >>> from heedful.models import RNN
    >>> rnn = RNN(27, hidden=64, kind="lstm")
    >>> tokens = torch.randint(27, (2, 10))
    >>> rnn(tokens).shape
    torch.Size([2, 10, 27])
    >>> len(rnn.generate([4, 8, 15], length=20, seed=0))
    23
    >>> RNN(27, outputs=2, predict="last")(tokens, lengths=torch.tensor([10, 7])).shape
    torch.Size([2, 2])
    """

    block = None  # it can read any number of tokens

    def __init__(
        self,
        vocabulary: int | None = None,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        hidden: int = 128,
        layers: int = 1,
        kind: Literal["elman", "lstm", "gru"] = "elman",
        predict: Literal["each", "last"] = "each",
        embedding: int | None = None,
        dropout: float = 0.0,
        activation: str = "tanh",
        bias: bool = True,
        truncate: int | None = None,
        backward: str = "autograd",
    ):
        super().__init__()
        if (vocabulary is None) == (inputs is None):
            raise ValueError(
                f"RNN(vocabulary={vocabulary}, inputs={inputs}): give one of them, the number of different "
                f"tokens or the width of vectors."
            )
        check_choice("RNN", "kind", kind, KINDS)
        check_choice("RNN", "predict", predict, ("each", "last"))
        check_share("RNN", dropout=dropout)
        outputs = vocabulary if outputs is None else outputs
        if outputs is None:
            raise ValueError(f"RNN(inputs={inputs}): say how many numbers it predicts, outputs=….")
        check_count("RNN", outputs=outputs)
        self.vocabulary, self.predict = outputs if vocabulary is None else vocabulary, predict
        self.embedding: nn.Embedding | None = None
        if vocabulary is not None:
            inputs = hidden if embedding is None else embedding
            check_count("RNN", vocabulary=vocabulary, embedding=inputs)
            self.embedding = nn.Embedding(vocabulary, inputs)
        self.dropout = nn.Dropout(dropout)
        own: dict[str, Any] = {"activation": activation, "truncate": truncate, "backward": backward}
        if kind != "elman" and own != {"activation": "tanh", "truncate": None, "backward": "autograd"}:
            raise ValueError(f'RNN(kind={kind!r}): activation, truncate and backward are for kind="elman".')
        sizes: Any = (inputs, hidden, layers)
        layer: Any = {"elman": ElmanRNN, "lstm": LSTM, "gru": GRU}[kind]
        self.recurrent = layer(*sizes, bias=bias, **(own if kind == "elman" else {}))
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Tokens (N, T) or vectors (N, T, inputs) → (N, T, outputs); (N, outputs) if it predicts the last.

        `lengths` (N,) says where each sequence ends, for those that predict the last and are padded.
        """
        if lengths is not None and self.predict != "last":
            raise ValueError('RNN(predict="each"): takes no lengths; padding changes nothing before it.')
        seen = self._embed(x)
        if self.predict == "last" and lengths is None and isinstance(self.recurrent, ElmanRNN):
            return self.head(self.dropout(self.recurrent.last(seen)))
        states, _ = self.recurrent(seen)
        if self.predict == "last":
            last = -1 if lengths is None else lengths - 1
            states = states[torch.arange(len(x), device=x.device), last]
        return self.head(self.dropout(states))

    def step(self, x: Tensor, state: Any = None, *, last: bool = False) -> tuple[Tensor, Any]:
        """Outputs after new tokens (N, t) or vectors, and the state to pass next time; None begins.

        Feeding a sequence in pieces gives what `forward` gives. `last=True` returns the last output only.
        """
        states, state = self.recurrent(self._embed(x), state)
        return self.head(self.dropout(states[:, -1:] if last else states)), state

    def loss(self, x: Tensor, targets: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of the targets, in nats; the tokens moved by one unless given.

        Targets of −100 do not count.
        """
        if targets is None:
            if self.embedding is None or self.predict == "last":
                raise ValueError("RNN.loss: a model of vectors, or of the last step, needs targets.")
            x, targets = x[:, :-1], x[:, 1:]
        return cross_entropy("RNN.loss", self(x, lengths), targets)

    def _embed(self, x: Tensor) -> Tensor:
        if self.embedding is None:
            return self.dropout(x)
        if x.is_floating_point() or x.dtype == torch.bool or x.dim() != 2:
            raise TypeError(f"RNN: takes tokens, whole numbers (N, T); got {x.dtype} of {tuple(x.shape)}.")
        return self.dropout(look_up("RNN", self.embedding, x))
