"""torch's MultiheadAttention on `attend`: its constructor, its call, its weights, and heedful's choices."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import Causal, Everyone, Mask
from ..attention.neighbors import Neighbors
from ..attention.position import Position
from ..attention.similarity import Similarity
from ..graphs import Graph
from ..nn.learning import Similar, check_position
from ..phrases import as_neighbors, as_similarity
from .weighted import attend_either, only_silences


class MultiheadAttention(Similar, nn.MultiheadAttention):
    r"""out_i = W_o concat_h Σ_j α_ij W_v v_j,   α_ij ∝ sim(W_q q_i, W_k k_j) e^{mask_ij}

    Everything before the * is torch's, and so are the names of the weights: a `state_dict` of
    `torch.nn.MultiheadAttention` loads unchanged and gives the same output. A listener whose every key is
    masked gets 0 where torch gives NaN.

    Args:
        similarity: a `Similarity`, or text such as "softmax", "polynomial(degree=2)".
        neighbors: who is heard, besides what masks forbid: a `Neighbors`, a `Graph`, or text such as
            "window(64)". With unequal lengths the ends align.
        position: a `Position` such as `Rotary()` or `Alibi()`, or one of `heedful.nn` that learns.

    What learns in a similarity or position is the layer's, beside torch's weights.

    `need_weights=True`, torch's default, holds a weight for every pair; pass `need_weights=False` if you do
    not look at them. `is_causal=True` means what torch's does, and needs no mask where lengths are equal.

    >>> import torch
    >>> theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    >>> ours = MultiheadAttention(16, 4, batch_first=True)
    >>> ours.load_state_dict(theirs.state_dict())
    <All keys matched successfully>
    >>> x = torch.randn(2, 10, 16)
    >>> torch.allclose(ours(x, x, x)[0], theirs(x, x, x)[0], atol=1e-6)
    True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device=None,
        dtype=None,
        *,
        similarity: Similarity | str = "softmax",
        neighbors: Neighbors | Graph | str = "everyone",
        position: Position | None = None,
    ):
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim={embed_dim} does not divide into num_heads={num_heads}."
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"MultiheadAttention(dropout={dropout}): must lie in [0, 1).")
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        check_position("MultiheadAttention", position)
        self._take("MultiheadAttention", as_similarity(similarity))
        self.neighbors, self.position = as_neighbors(neighbors), position
        placed = position is not None or not isinstance(self.neighbors, Everyone)
        if placed and (add_bias_kv or add_zero_attn):
            raise ValueError(
                "MultiheadAttention: add_bias_kv and add_zero_attn add a key that stands nowhere, so they go "
                "with neighbors and position only as they are by default."
            )

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # torch's encoder layers have a fast path around their attention's `forward`; this bars it.
        self._qkv_same_embed_dim = False

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, **choices) -> MultiheadAttention:
        """The same layer, sharing the module's weights; `choices` are similarity, neighbors and position."""
        if not isinstance(module, nn.MultiheadAttention):
            raise TypeError(
                f"from_torch(): takes a torch.nn.MultiheadAttention, got {type(module).__name__}."
            )
        made = cls(
            module.embed_dim,
            module.num_heads,
            module.dropout,
            module.in_proj_bias is not None,
            module.bias_k is not None,
            module.add_zero_attn,
            module.kdim,
            module.vdim,
            module.batch_first,
            "meta",
            **choices,
        )
        for name, parameter in module.named_parameters(recurse=False):
            setattr(made, name, parameter)
        made.out_proj = module.out_proj
        return made.train(module.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `torch.nn.MultiheadAttention.forward`, masks included: True, or −inf, forbids."""
        if query.is_nested:
            return self._nested(query, key, value, need_weights, attn_mask, is_causal)

        self._check(query, key, value)
        single, swap = query.dim() == 2, query.dim() == 3 and not self.batch_first
        q, k, v = (
            self._split(x, single, swap) for x in self._project(query, key, value)
        )  # (batch, heads, length, dim)
        if single and key_padding_mask is not None:
            key_padding_mask = key_padding_mask[None]
        neighbors, bias = self._heard(q, k, key_padding_mask, attn_mask, is_causal)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([x, self._split(extra, False, False).expand(len(x), -1, -1, -1)], -2)
                for x, extra in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        out, weights = attend_either(
            q,
            k,
            v,
            similarity=self.similarity,
            neighbors=neighbors,
            position=self.position,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            want_weights=need_weights,
        )
        out = self.out_proj(out.transpose(1, 2).flatten(-2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return out[0], None if weights is None else weights[0]
        return out.transpose(0, 1) if swap else out, weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """W_q q, W_k k, W_v v; one product where they are one tensor."""
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        inputs = (query, key, value)
        return tuple(
            F.linear(x, weight, bias) for x, weight, bias in zip(inputs, weights, biases, strict=True)
        )

    def _split(self, x: Tensor, single: bool, swap: bool) -> Tensor:
        x = x[None] if single else x.transpose(0, 1) if swap else x
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _heard(self, query, key, key_padding_mask, attn_mask, is_causal) -> tuple[Neighbors, Tensor | None]:
        """Who hears whom, and what is added to the scores."""
        (batch, _, queries, _), keys = query.shape, key.shape[-2]
        extra = (self.bias_k is not None) + self.add_zero_attn
        neighbors, bias = self.neighbors, None
        if is_causal and queries == keys and not extra:
            neighbors, attn_mask = _both(neighbors, Causal()), None  # what the hint says the mask is
        elif is_causal and attn_mask is None:
            raise ValueError(
                f"MultiheadAttention: is_causal=True without attn_mask takes as many queries as keys, and no "
                f"added ones; got {queries} and {keys}{f' and {extra} added' if extra else ''}. Give a mask."
            )
        for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if mask is None:
                continue
            if mask.dtype != torch.bool and not mask.is_floating_point():
                raise TypeError(
                    f"MultiheadAttention: {name} is {mask.dtype}; takes booleans, where True forbids, or "
                    f"numbers to add to the scores."
                )
            mask = self._shaped(name, mask, batch, queries, keys)
            mask = F.pad(mask, (0, extra))  # everyone hears the added keys
            allowed = ~mask if mask.dtype == torch.bool else only_silences(mask)
            if allowed is not None:
                neighbors = _both(neighbors, Mask(allowed))
            else:
                bias = mask if bias is None else bias + mask
        return neighbors, bias

    def _shaped(self, name: str, mask: Tensor, batch: int, queries: int, keys: int) -> Tensor:
        """A mask as it broadcasts to (batch, heads, queries, keys)."""
        if name == "key_padding_mask":
            if mask.shape == (batch, keys):
                return mask[:, None, None]
            raise ValueError(
                f"MultiheadAttention: key_padding_mask has shape {tuple(mask.shape)}; takes {(batch, keys)}, "
                f"or {(keys,)} for input without a batch."
            )
        if mask.shape == (queries, keys):
            return mask
        if mask.shape == (batch * self.num_heads, queries, keys):
            return mask.unflatten(0, (batch, self.num_heads))
        raise ValueError(
            f"MultiheadAttention: attn_mask has shape {tuple(mask.shape)}; takes {(queries, keys)}, or "
            f"{(batch * self.num_heads, queries, keys)}, one for each entry of the batch and head."
        )

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, x, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if x.dim() not in (2, 3) or x.dim() != query.dim() or x.shape[-1] != width:
                layout = "batch, length" if self.batch_first else "length, batch"
                raise ValueError(
                    f"MultiheadAttention: {name} has shape {tuple(x.shape)}, query {tuple(query.shape)}; "
                    f"takes ({layout}, {width}), or (length, {width}), all three alike."
                )
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"MultiheadAttention: key has shape {tuple(key.shape)}, value {tuple(value.shape)}; both "
                f"must agree in all but the last."
            )

    def _nested(self, query, key, value, need_weights, attn_mask, is_causal):
        """Sequences of several lengths, as torch's encoder packs a padded batch: padded, then packed anew."""
        if query is not key or key is not value or attn_mask is not None or is_causal or need_weights:
            raise ValueError(
                "MultiheadAttention: a nested tensor is taken as query, key and value at once, without masks "
                "and with need_weights=False."
            )
        padded = query.to_padded_tensor(0.0)
        lengths = torch.tensor([len(sequence) for sequence in query.unbind()], device=padded.device)
        real = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
        out, _ = self.forward(padded, padded, padded, ~real, need_weights=False)
        return torch._nested_tensor_from_mask(out, real, mask_check=False), None

    def extra_repr(self) -> str:
        parts = [
            f"{self.embed_dim}, {self.num_heads}, similarity={self.similarity}, neighbors={self.neighbors}"
        ]
        if self.position is not None and not isinstance(self.position, nn.Module):
            parts.append(f"position={self.position}")
        return ", ".join(parts)


def _both(one: Neighbors, other: Neighbors) -> Neighbors:
    return other if isinstance(one, Everyone) else one & other


def convert(model: nn.Module, **choices) -> int:
    """Put a `MultiheadAttention` in the place of every torch one inside `model`; how many there were.

    Weights are shared, not copied, so an optimizer that holds them goes on. `choices` are `similarity`,
    `neighbors` and `position`.

    >>> import torch
    >>> model = torch.nn.Transformer(16, 4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=32)
    >>> convert(model)
    6
    """
    if isinstance(model, nn.MultiheadAttention):
        raise TypeError("convert(): the model is the layer itself; use MultiheadAttention.from_torch(model).")
    count = 0
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.MultiheadAttention) and not isinstance(child, MultiheadAttention):
                setattr(parent, name, MultiheadAttention.from_torch(child, **choices))
                count += 1
    return count
