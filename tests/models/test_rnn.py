"""RNN: it decodes what it reads, truncates what it is told to, and learns to recall."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from heedful.models import RNN
from heedful.models.rnn import KINDS

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_pieces_make_the_whole(kind, seed):
    rnn = RNN(11, hidden=8, layers=2, kind=kind).double().eval()
    tokens = torch.randint(11, (3, 9))
    whole = rnn(tokens)
    state, found = None, []
    for piece in tokens.split([1, 5, 3], 1):
        logits, state = rnn.step(piece, state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), whole)
    torch.testing.assert_close(rnn.step(tokens, last=True)[0], whole[:, -1:])


@kinds
def test_generates(kind, seed):
    rnn = RNN(11, hidden=8, kind=kind).double()
    greedy = rnn.generate([3, 1], length=6, temperature=0)
    text = [3, 1]
    for _ in range(6):
        text.append(int(rnn.eval()(torch.tensor([text]))[0, -1].argmax()))
    assert greedy.tolist() == text
    assert torch.equal(rnn.generate([3, 1], 6, seed=seed), rnn.generate([3, 1], 6, seed=seed, cache=False))


@kinds
def test_padding_is_not_read(kind, seed):
    rnn = RNN(11, outputs=4, hidden=8, kind=kind, predict="last").double()
    tokens, lengths = torch.randint(11, (3, 9)), torch.tensor([9, 4, 1])
    found = rnn(tokens, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(found[row : row + 1], rnn(tokens[row : row + 1, :length]))


@kinds
def test_loss_is_of_the_next_token(kind, seed):
    rnn, tokens = RNN(11, hidden=8, kind=kind), torch.randint(11, (3, 9))
    logits = rnn(tokens[:, :-1])
    expected = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    torch.testing.assert_close(rnn.loss(tokens), expected)
    targets = tokens.clone()
    targets[:, :4] = -100
    expected = F.cross_entropy(rnn(tokens)[:, 4:].flatten(0, 1), tokens[:, 4:].flatten())
    torch.testing.assert_close(rnn.loss(tokens, targets), expected)


def test_vectors(seed):
    rnn = RNN(inputs=3, outputs=2, hidden=5, activation="sigmoid", bias=False)
    x = torch.randn(4, 6, 3)
    h, _ = rnn.recurrent(x)
    torch.testing.assert_close(rnn(x), h @ rnn.head.weight.T + rnn.head.bias)


def test_truncation_hides_what_is_further_back(seed):
    """The gradient of an embedding at lag τ, of a loss at the last step: none beyond k, some within."""
    tokens = torch.arange(9)[None]
    for k in range(9):
        for backward in ("autograd", "by hand"):
            rnn = RNN(9, hidden=6, truncate=k, backward=backward, predict="last")
            rnn(tokens).sum().backward()
            heard = rnn.embedding.weight.grad.abs().sum(1) > 0
            assert heard.tolist() == [8 - token <= k for token in range(9)]


def test_recall_is_learned_if_the_window_holds_it(seed):
    """Say the token of four steps ago: with k = 4 it is learned, with k = 3 hardly better than by chance."""
    lag, vocabulary = 4, 3

    def accuracy(k):
        torch.manual_seed(seed)
        rnn = RNN(vocabulary, hidden=24, truncate=k, backward="by hand")
        optimizer = torch.optim.Adam(rnn.parameters(), lr=0.01)
        for _ in range(300):
            tokens = torch.randint(vocabulary, (32, 16))
            targets = F.pad(tokens[:, :-lag], (lag, 0), value=-100)
            loss = rnn.loss(tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tokens = torch.randint(vocabulary, (200, 16))
        return (rnn(tokens)[:, lag:].argmax(-1) == tokens[:, :-lag]).double().mean().item()

    assert accuracy(lag) > 0.9
    assert accuracy(lag - 1) < 0.65


def test_the_gradient_of_every_state(seed):
    rnn = RNN(5, hidden=4)
    rnn.recurrent.keep_state_gradients = True
    rnn.loss(torch.randint(5, (2, 7))).backward()
    assert rnn.recurrent.state_gradients.shape == (1, 2, 6, 4)


@pytest.mark.parametrize(
    "options, says",
    [
        ({}, "give one of them"),
        ({"vocabulary": 3, "inputs": 3}, "give one of them"),
        ({"inputs": 3}, "outputs=…"),
        ({"vocabulary": 3, "kind": "lsmt"}, "did you mean 'lstm'"),
        ({"vocabulary": 3, "kind": "lstm", "truncate": 3}, 'for kind="elman"'),
        ({"vocabulary": 3, "predict": "first"}, "'each', 'last'"),
        ({"vocabulary": 3, "dropout": 1.0}, "less than 1"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        RNN(**options)


def test_wrong_inputs_are_named():
    with pytest.raises(TypeError, match="whole numbers"):
        RNN(5)(torch.randn(2, 3))
    with pytest.raises(ValueError, match="RNN: token 5 is not in the vocabulary, 0 … 4"):
        RNN(5)(torch.tensor([[1, 5]]))
    with pytest.raises(ValueError, match=r"RNN\.loss: target 3 is not among 0 … 2"):
        RNN(5, outputs=3, predict="last").loss(torch.tensor([[1, 4]]), torch.tensor([3]))
    with pytest.raises(ValueError, match="needs targets"):
        RNN(5, predict="last").loss(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="takes no lengths"):
        RNN(5)(torch.zeros(2, 3, dtype=torch.long), torch.tensor([1, 2]))
