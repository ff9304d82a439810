"""Tokens looked up and scored, with words for those that are not in the vocabulary.

Nothing is checked beforehand: a compiler could not look, and a GPU would have to be waited for. torch's own
complaint, where it has one, is told again.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

IGNORED = -100


def look_up(where: str, table: nn.Embedding, tokens: Tensor) -> Tensor:
    """The row of each token."""
    try:
        return table(tokens)
    except IndexError:
        raise _stranger(where, "token", tokens, table.num_embeddings) from None


def cross_entropy(where: str, logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the targets that are not −100, in nats."""
    try:
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
    except IndexError:
        raise _stranger(where, "target", targets[targets != IGNORED], logits.shape[-1]) from None


def _stranger(where: str, what: str, given: Tensor, known: int) -> ValueError:
    try:
        which = f"{what} {int(given[(given < 0) | (given >= known)][0])}"
    except RuntimeError:  # under vmap nobody can look
        which = f"a {what}"
    among = "in the vocabulary," if what == "token" else "among"
    return ValueError(f"{where}: {which} is not {among} 0 … {known - 1}.")
