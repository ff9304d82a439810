"""Hugging Face transformers on `attend`: register once, then ask for `attn_implementation="heedful"`.

transformers describes masks by functions of (batch, head, query, key). Those of a known form (causal, sliding
window, chunks, packed sequences) are read back into `Causal`, `Window` and `Segments`, so the planner sees
structure where others see a dense mask; the rest becomes a `Mask`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from operator import and_
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Causal, Everyone, Mask, ScoreFunction, Segments, Softmax, Window
from ..attention.neighbors import Neighbors, Tile
from ..attention.similarity import Similarity
from ..phrases import as_similarity
from .weighted import attend_either, only_silences


def register(
    name: str = "heedful", *, similarity: Similarity | str | None = None, strategy: str = "auto"
) -> None:
    """Make `attn_implementation=name` run a transformers model on `attend`.

    Weights, caches, `generate`, padding, sliding windows, packing, T5's position bias, Gemma's capped scores
    and `output_attentions` work as before; padding that hears nobody gives 0. Refused, with a reason:
    attention sinks, paged caches, and models whose attention is code of their own.

    `similarity` puts another in place of the model's softmax (and its scaling), `strategy` forces one:
    register each such choice under a name of its own.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from heedful.interop import huggingface
    >>> huggingface.register()
    >>> config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=16)
    >>> model = GPT2LMHeadModel._from_config(config, attn_implementation="heedful")
    >>> model(torch.tensor([[3, 1, 4, 1, 5]])).logits.shape
    torch.Size([1, 5, 16])
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise ImportError("register() needs transformers 5 or newer: pip install -U transformers") from error

    if not isinstance(name, str) or not name or name in _TAKEN:
        raise ValueError(
            f"register(name={name!r}): takes a name of your own for the attention, such as 'heedful'."
        )
    chosen = as_similarity(similarity)
    if not isinstance(chosen, (Similarity, type(None))):
        raise TypeError(
            f"register(similarity={similarity!r}): takes a similarity such as Polynomial(2), its text, or "
            f"None, which leaves the model its softmax."
        )

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask=None, **options
    ):
        return _attention(module, query, key, value, attention_mask, chosen, strategy, **options)

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, _mask)


_TAKEN = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    similarity: Similarity | None,
    strategy: str,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    cache=None,
    output_attentions: bool = False,
    **_,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls: (batch, heads, length, dim) to (batch, length, heads, dim), and weights."""
    if s_aux is not None:
        raise NotImplementedError(
            f"{type(module).__name__} has attention sinks, which heedful does not compute; "
            f'use attn_implementation="eager".'
        )
    if cache is not None:
        raise NotImplementedError(
            'heedful does not read paged caches (continuous batching); use attn_implementation="sdpa".'
        )
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    queries = query.shape[-2]
    if mask is None and is_causal and 1 < queries < key.shape[-2]:
        # A static cache, empty before these tokens: what lies beyond them is not yet written.
        key, value = key[..., :queries, :], value[..., :queries, :]
    neighbors, bias = _neighbors(mask, is_causal and queries > 1)
    if position_bias is not None:
        position_bias = position_bias[..., : key.shape[-2]]
        bias = position_bias if bias is None else bias + position_bias
    if similarity is None:
        similarity = Softmax(scaling) if softcap is None else _capped(softcap, scaling)
    elif softcap is not None:
        raise ValueError(
            f"{type(module).__name__} caps its softmax scores at {softcap}, which {similarity} has not."
        )
    out, weights = attend_either(
        query,
        key,
        value,
        similarity=similarity,
        neighbors=neighbors,
        bias=bias,
        dropout=dropout,
        strategy=strategy,
        want_weights=output_attentions or _weights_are_collected(),
    )
    return out.transpose(1, 2).contiguous(), weights


def _neighbors(mask, causal: bool) -> tuple[Neighbors, Tensor | None]:
    """Who hears whom, and what is added to the scores, from whatever `_mask` or the caller made."""
    if mask is None:
        return (Causal() if causal else Everyone()), None
    if isinstance(mask, _Pattern):
        return mask.neighbors, None
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"attention_mask is a {type(mask).__name__}; heedful takes None, or a tensor of booleans or of "
            f"numbers added to scores."
        )
    if mask.dtype == torch.bool:
        return Mask(mask), None
    allowed = only_silences(mask)
    return (Everyone(), mask) if allowed is None else (Mask(allowed), None)


def _weights_are_collected() -> bool:
    """Whether the caller wants `output_attentions`: some models do not pass the word on to their layers."""
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return False
    return any("attentions" in name for name in _active_collector.get() or ())


@lru_cache
def _capped(cap: float, scaling: float | None) -> ScoreFunction:
    """cap · tanh(scale · q·k / cap), as Gemma 2 does. One object for each cap, so its plans are kept."""

    def capped(query: Tensor, key: Tensor) -> Tensor:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return cap * torch.tanh(query @ key.mT * (scale / cap))

    return ScoreFunction(capped)


class _Pattern(Tensor):
    """A mask that knows its structure. Who treats it as the tensor it stands for gets that tensor."""

    neighbors: Neighbors

    @staticmethod
    def __new__(cls, neighbors: Neighbors, shape: tuple[int, int, int, int], device):
        pattern = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)
        pattern.neighbors = neighbors
        return pattern

    def dense(self) -> Tensor:
        queries, keys = self.shape[-2:]
        device = torch.device(self.device)
        allowed = self.neighbors.mask(Tile.whole(queries, keys, device))
        return (torch.ones((), dtype=torch.bool, device=device) if allowed is None else allowed).expand(
            self.shape
        )

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map_only(_Pattern, _Pattern.dense, (args, kwargs or {}))
        return function(*plain[0], **plain[1])

    def __repr__(self, **_):
        return f"{self.neighbors} for {' × '.join(map(str, self.shape))}"


def _mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset=0,
    kv_offset=0,
    mask_function: Callable,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device="cpu",
    config=None,
    **options,
) -> Tensor | None:
    """What transformers calls once a pass for each kind of layer; `_attention` gets what it returns."""
    from transformers.masking_utils import sdpa_mask
    from transformers.utils import is_tracing

    def dense() -> Tensor | None:
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=allow_is_causal_skip,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip,
            device=device,
            config=config,
            **options,
        )

    if is_tracing(attention_mask) or isinstance(q_offset, Tensor):  # values must not be looked at
        return dense()
    if config is not None:
        _check_model(config.__class__)

    if q_offset + q_length != kv_offset + kv_length:  # room for what is not yet said: ends do not align
        return dense()
    neighbors = _read(mask_function, [range(kv_offset, kv_offset + kv_length)])
    if neighbors is None:
        return dense()
    plain = neighbors in (Causal(), Everyone())
    if attention_mask is not None:
        heard = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
        if heard.shape[-1] != kv_length or not bool(heard.all()):
            if plain or heard.shape[-1] != kv_length:
                return dense()
            neighbors = neighbors & Mask(heard[:, None, None, :])
    skips = allow_is_bidirectional_skip if neighbors == Everyone() else allow_is_causal_skip
    alone = q_length == 1 and neighbors.facts(q_length, kv_length).complete
    if skips and (alone or neighbors == Everyone() or (neighbors == Causal() and q_length == kv_length)):
        return None
    return _Pattern(neighbors, (batch_size, 1, q_length, kv_length), device)


@lru_cache
def _check_model(config: Any) -> None:
    """Refuse models with attention of their own, which would take a pattern for no mask at all."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if config in MODEL_MAPPING:
        model: Any = MODEL_MAPPING[config]

        can_be_set = getattr(model, "_can_set_attn_implementation", None)
        if can_be_set is not None and not can_be_set():
            raise ValueError(
                f"transformers' {model.__name__} computes attention in code of its own, whatever "
                f'attn_implementation says; use attn_implementation="eager" for it.'
            )


def _read(
    function: Callable, runs: Sequence[range], *, causal: bool = False, packed: bool = False
) -> Neighbors | None:
    """The pattern a mask function of transformers stands for, or None if it is none of the known forms.

    They are closures, known by the function that made them. `runs` are the positions of the keys; `causal`
    says that another function forbids the future, `packed` that another keeps sequences apart.
    """
    (maker, held), length = _opened(function), sum(map(len, runs))
    match maker:
        case "causal_mask_function":
            return Causal()
        case "bidirectional_mask_function":
            return Everyone()
        case "sliding_window_overlay":  # the last so many, itself among them; says nothing of the future
            past = held["sliding_window"] - 1
            return Window(past) if causal and past > 0 else None
        case "sliding_window_bidirectional_overlay":
            return Window(held["sliding_window"])
        case "chunked_overlay":
            return None if bool(held["left_padding"].any()) else _chunks(held["chunk_size"], runs)
        case "packed_sequence_mask_function":
            return _packed(held["packed_sequence_mask"], length)
        case "remap_positions_for_packed_sequence":  # from 5.23 on; sequences are told apart by the same ids
            own = _restarted(held["position_ids"], length) if packed else None
            return None if own is None else _read(held["mask_function"], own)
        case "and_masks":
            functions = held["mask_functions"]
            makers = [_opened(part)[0] for part in functions]
            others = {
                "causal": "causal_mask_function" in makers,
                "packed": "packed_sequence_mask_function" in makers,
            }
            parts = [_read(part, runs, **others) for part in functions]
            if any(part is None for part in parts):
                return None
            parts = sorted((part for part in parts if part != Everyone()), key=lambda part: part != Causal())
            return reduce(and_, parts) if parts else Everyone()
    return None


def _opened(function: Callable) -> tuple[str, dict[str, Any]]:
    """Which function of transformers made this one, and what it gave it; an empty name if none did."""
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return "", {}
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    held = dict(zip(function.__code__.co_freevars, cells, strict=True))
    return function.__qualname__.split(".")[0], held


def _chunks(size: int, runs: Sequence[range]) -> Neighbors:
    """Each run cut where its positions reach a multiple of `size`."""
    lengths: list[int] = []
    for run in runs:
        ends = [*range(size - run.start % size, len(run), size), len(run)]
        lengths += [end - before for before, end in pairwise([0, *ends])]
    return Segments(lengths) if len(lengths) > 1 else Everyone()


def _restarted(positions: Tensor, length: int) -> list[range] | None:
    """The runs that count on by ones, if all rows have the same."""
    if positions.shape[-1] != length or not bool((positions == positions[:1]).all()):
        return None
    row = positions[0].tolist()
    begins = [n for n in range(length) if n == 0 or row[n] != row[n - 1] + 1]
    return [range(row[a], row[a] + b - a) for a, b in pairwise([*begins, length])]


def _packed(sequence: Tensor, length: int) -> Neighbors | None:
    """Sequences one after another, told apart by a number a token, if all rows are packed alike."""
    if sequence.shape[-1] != length or not bool((sequence == sequence[:1]).all()):
        return None
    return Segments(sequence[0].unique_consecutive(return_counts=True)[1])
