"""attend() for a layer whose choices were made once, while torch.compile looks on: one word to watch.

Before each call a compiled function checks that all it read while tracing is as it was. A similarity, a
pattern and a position are objects of a dozen attributes in every layer, and the planner reads them all: a
step of a small GPT would look after more of them than after weights. So a layer has one word for its choices,
and a module that nobody touched is passed over with its word. The plan is a constant to the compiler.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, is_grad_enabled

from ..kernels.compiling import constant_to_compiler
from .neighbors import Interval, Neighbors, Pair
from .operator import _run, attend
from .plan import make_plan
from .position import Position
from .problem import Problem, bucket
from .similarity import Similarity
from .strategies import STRATEGIES
from .strategies.fused import plainly_causal
from .strategies.sdpa import sdpa
from .transforms import autocast

_SETTLED: dict[str, tuple[Any, Any, Any]] = {}


def settle(similarity, neighbors, position) -> str | None:
    """A word for these choices, the same for equal ones; None if they are not ours or hold tensors.

    Ours are values: a signature says all there is to one.
    """
    chosen = (similarity, neighbors, position)
    # Other patterns fit certain lengths only, which would have to be looked at in every call.
    if not isinstance(neighbors, (Interval, Pair)) or not all(_plain(each) for each in chosen):
        return None
    word = str([None if each is None else each.signature for each in chosen])
    _SETTLED.setdefault(word, chosen)
    return word


def _plain(thing) -> bool:
    if isinstance(thing, (Similarity, Neighbors, Position)):
        ours = type(thing).__module__.startswith(f"{__package__}.")
        return ours and all(_plain(part) for part in vars(thing).values())
    if isinstance(thing, tuple):
        return all(_plain(part) for part in thing)
    return thing is None or type(thing) in (bool, int, float, str)


def attend_settled(word: str, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """attend(query, key, value) with what the word stands for. Plans are for the next power of two."""
    *lead, heads, queries, dim = query.shape
    keys, width = key.shape[-2], value.shape[-1]
    batch = 1
    for extent in lead:
        batch *= extent
    wanted = query.requires_grad or key.requires_grad or value.requires_grad
    # Numbers may be symbols; branches make plain ones of comparisons.
    drops, square = True if dropout > 0 else False, True if queries == keys else False  # noqa: SIM210
    name, turns, causal, scale = _planned(
        word,
        (bucket(batch), heads, key.shape[-3], bucket(queries), bucket(keys), dim, width),
        (query.dtype, query.device.type, drops, is_grad_enabled() and wanted),
        square,
    )
    alike = query.dim() == key.dim() == value.dim() == 4 and query.shape[0] == key.shape[0] == value.shape[0]
    plain = scale if alike else None
    if not name or (plain is None and autocast(query)):
        similarity, neighbors, position = _SETTLED[word]
        return attend(
            query, key, value, similarity=similarity, neighbors=neighbors, position=position, dropout=dropout
        )
    if plain is None:
        return _run(STRATEGIES[name], query, key, value, *_SETTLED[word], dropout)
    if turns:
        query, key = _SETTLED[word][2].apply(query, key)
    return sdpa(query, key, value, None, causal, plain)


@constant_to_compiler
def _planned(word: str, sizes: tuple, kind: tuple, square: bool) -> tuple[str, bool, bool, float | None]:
    """The strategy's name; whether the position turns, causal and scale, if all there is to it is torch's
    attention without a mask. Without a name where nobody is there, or where attend() has something to say.
    """
    batch, heads, key_heads, queries, keys, dim, width = sizes
    dtype, device, dropout, gradient = kind
    similarity, neighbors, position = _SETTLED[word]
    try:
        similarity.check(dim, dim, heads)
    except ValueError:
        return "", False, False, None
    if not (batch and queries and keys):
        return "", False, False, None
    facts = neighbors.facts(queries, keys)
    problem = Problem(
        *(batch, heads, key_heads, queries, keys, dim, width),
        dtype=str(dtype).removeprefix("torch."),
        device=device,
        similarity=similarity.facts(dim),
        neighbors=facts,
        position=None if position is None else position.facts(),
        dropout=dropout,
        gradient=gradient,
        transform="compile",
    )
    name = make_plan(problem).strategy
    causal = square and plainly_causal(facts, queries, keys)
    bare = name == "fused" and not dropout and dim == width and (facts.complete or causal)
    if not bare or problem.position is not None:
        return name, False, False, None
    return name, position is not None and position.rotates, causal, similarity.resolved(dim)
