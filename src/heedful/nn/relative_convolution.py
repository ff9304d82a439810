"""A convolution is attention that looks at positions only: the layer that is both, and the way to and fro."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Causal, Relative, Softmax, Uniform, Window, attend
from ..attention.similarity import Similarity
from .checks import check_choice, check_count
from .convolution import MODES, Conv1d, pad, pad_amount


class RelativeAttention(nn.Module):
    r"""y_i = b + Σ_h W^h Σ_m a^h_im x_{i+m},   a^h_im = softmax_m(p^h_m + q^h_i·k^h_{i+m}/√d)

    Multi-head attention over a window of `kernel` places, laid out as a convolution: x is (N, inputs, T).
    `table` holds p, (heads, kernel); `weight` holds W_o W_v of each head, (heads, outputs, inputs).

    Without `content` the scores are p alone, and the layer is a convolution whose kernel is Σ_h a^h_m W^h.
    With `content=d`, queries and keys of width d are compared as well. Stride, dilation, padding and mode are
    those of `Conv1d`; what padding shows beyond the edge is heard like anything else.

    >>> layer = RelativeAttention(3, 8, kernel=5, heads=2, content=4)
    >>> layer(torch.randn(1, 3, 20)).shape
    torch.Size([1, 8, 20])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        heads: int = 1,
        content: int = 0,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        padding: str | int = "same",
        mode: str = "zeros",
    ):
        super().__init__()
        where = "RelativeAttention"
        check_count(where, inputs=inputs, outputs=outputs, kernel=kernel, heads=heads)
        check_count(where, stride=stride, dilation=dilation)
        check_count(where, content=content, least=0)
        check_choice(where, "mode", mode, MODES)
        self.kernel, self.heads, self.content = kernel, heads, content
        self.stride, self.dilation, self.padding, self.mode = stride, dilation, padding, mode
        self.pads = pad_amount(padding, kernel, dilation)
        self.table = nn.Parameter(torch.randn(heads, kernel))
        self.weight = nn.Parameter(torch.empty(heads, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.query = nn.Parameter(torch.empty(heads, content, inputs)) if content else None
        self.key = nn.Parameter(torch.empty(heads, content, inputs)) if content else None
        for matrix in (self.weight, self.query, self.key):
            if matrix is not None:
                nn.init.normal_(matrix, std=inputs**-0.5)

    @property
    def span(self) -> int:
        """Distance between the first place heard and the last."""
        return self.dilation * (self.kernel - 1)

    def forward(self, x: Tensor) -> Tensor:
        heads, _, inputs = self.weight.shape
        if x.dim() != 3 or x.shape[1] != inputs:
            raise ValueError(f"{self}: got shape {tuple(x.shape)}; takes (N, {inputs}, T).")
        x = pad(x, [self.pads], self.mode)
        if x.shape[-1] <= self.span:
            raise ValueError(f"{self}: needs {self.span + 1} places, padding included; got {x.shape[-1]}.")
        value = x.mT.unsqueeze(1)  # (N, 1, places, inputs): all heads hear the same
        listeners = x.shape[-1] - self.span
        similarity: Similarity = Uniform()
        if self.query is None or self.key is None:
            query, key = (
                x.new_zeros(x.shape[0], heads, listeners, 1),
                x.new_zeros(x.shape[0], 1, x.shape[-1], 1),
            )
        else:
            similarity = Softmax()
            query = value.narrow(2, self.span // 2, listeners) @ self.query.mT
            key, value = value @ self.key.mT, value.expand(-1, heads, -1, -1)
        # Ends align: listener i stands at the last place it hears, so that all it hears lies behind.
        neighbors, position = Causal() & Window(max(1, self.span)), Relative(self._offsets())
        heard = attend(query, key, value, similarity=similarity, neighbors=neighbors, position=position)
        y = torch.einsum("nhtc,hoc->not", heard[:, :, :: self.stride], self.weight)
        return y if self.bias is None else y + self.bias[:, None]

    def _offsets(self) -> Tensor:
        """The table by offset, as `Relative` takes it: p_m at distance span − dilation·m, the rest silent."""
        reach = max(1, self.span)
        silent = self.table.new_full((self.table.shape[0], 2 * reach + 1), -math.inf)
        taps = torch.arange(self.kernel, device=self.table.device)
        return silent.index_copy(1, reach + self.span - self.dilation * taps, self.table)

    def extra_repr(self) -> str:
        heads, outputs, inputs = self.weight.shape
        content = f", content={self.content}" if self.content else ""
        return f"{inputs}, {outputs}, kernel={self.kernel}, heads={heads}{content}"


def relative_attention_from_convolution(conv: nn.Conv1d, *, heads: str = "taps") -> RelativeAttention:
    """The attention layer that computes a given 1-D convolution: any weights, stride, dilation, padding.

    `heads="taps"` takes one head for each place of the kernel: it looks there and nowhere else (p = 0 there,
    −∞ elsewhere), and its W holds the weights of that place.

    `heads="kernels"` takes one head for each kernel w_oc and sign: p_m = log |w_ocm| where w has that sign,
    −∞ elsewhere. Softmax makes a kernel of sum one of it; W puts the sum and the sign back.

    >>> conv = nn.Conv1d(1, 1, 3, bias=False)
    >>> conv.weight.data = torch.tensor([[[2.0, 0.0, 1.0]]])
    >>> layer = relative_attention_from_convolution(conv, heads="kernels")
    >>> layer.table.data, layer.weight.item()
    (tensor([[0.6931,   -inf, 0.0000]]), 3.0)
    >>> layer(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])).data                    # 2·1 + 3, 2·2 + 4
    tensor([[[5., 8.]]])
    """
    check_choice("relative_attention_from_convolution", "heads", heads, ("taps", "kernels"))
    if not isinstance(conv, nn.Conv1d):
        raise TypeError(
            f"relative_attention_from_convolution: takes a Conv1d, heedful's or torch's, "
            f"got {type(conv).__name__}. Attention by relative position has one dimension."
        )
    kernel = _dense(conv)
    table, weight = _one_head_a_tap(kernel) if heads == "taps" else _one_head_a_kernel(kernel)
    outputs, inputs, size = kernel.shape
    layer = RelativeAttention(
        inputs,
        outputs,
        size,
        heads=len(table),
        stride=conv.stride[0],
        dilation=conv.dilation[0],
        bias=conv.bias is not None,
        **_beyond(conv),
    )
    layer.table.data, layer.weight.data = table, weight
    if layer.bias is not None and conv.bias is not None:
        layer.bias.data = conv.bias.detach().clone()
    return layer


def convolution_from_relative_attention(layer: RelativeAttention) -> Conv1d:
    """The convolution that a relative-attention layer computes, if it looks at positions only.

    Its kernel is Σ_h softmax(p^h)_m W^h, in as many groups as its zeros allow.

    >>> layer = RelativeAttention(4, 4, kernel=3, heads=2)
    >>> conv, x = convolution_from_relative_attention(layer), torch.randn(1, 4, 10)
    >>> torch.allclose(conv(x), layer(x), atol=1e-5)
    True
    """
    if not isinstance(layer, RelativeAttention):
        raise TypeError(
            f"convolution_from_relative_attention: takes a RelativeAttention, got {type(layer).__name__}."
        )
    if layer.query is not None and layer.key is not None and layer.query.any() and layer.key.any():
        raise ValueError(
            f"convolution_from_relative_attention: {layer} weighs places by what is there (neither its query "
            f"nor its key is zero); a convolution weighs them by where they are. Zero one of the two first."
        )
    attention = torch.softmax(layer.table.detach(), -1).nan_to_num()  # a head that hears nothing says 0
    kernel = torch.einsum("hm,hoc->ocm", attention, layer.weight.detach())
    outputs, inputs, size = kernel.shape
    groups = _groups(kernel)
    conv = Conv1d(
        inputs,
        outputs,
        size,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=groups,
        bias=layer.bias is not None,
        padding=layer.padding,
        mode=layer.mode,
    )
    blocks = kernel.unflatten(0, (groups, -1)).unflatten(2, (groups, -1))  # (G, O/G, G, C/G, K)
    conv.weight.data = torch.cat([blocks[g, :, g] for g in range(groups)])
    if conv.bias is not None and layer.bias is not None:
        conv.bias.data = layer.bias.detach().clone()
    return conv


def _dense(conv: nn.Conv1d) -> Tensor:
    """The kernel as if in one group, zero between groups: (outputs, inputs, size)."""
    blocks = conv.weight.detach().unflatten(0, (conv.groups, -1))  # (G, O/G, C/G, K)
    dense = blocks.new_zeros(conv.groups, blocks.shape[1], conv.groups, *blocks.shape[2:])
    for g in range(conv.groups):
        dense[g, :, g] = blocks[g]
    return dense.flatten(2, 3).flatten(0, 1)


def _beyond(conv: nn.Conv1d) -> dict[str, Any]:
    """The padding of a convolution, heedful's or torch's, in the words of this layer."""
    own = isinstance(conv, Conv1d)
    padding: Any = conv.said if own else conv.padding
    mode = conv.mode if own else conv.padding_mode
    return {"padding": padding[0] if isinstance(padding, (tuple, list)) else padding, "mode": mode}


def _one_head_a_tap(kernel: Tensor) -> tuple[Tensor, Tensor]:
    only = torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
    return only.log(), kernel.permute(2, 0, 1).contiguous()


def _one_head_a_kernel(kernel: Tensor) -> tuple[Tensor, Tensor]:
    outputs, inputs, _ = kernel.shape
    parts = torch.stack([kernel.clamp_min(0), -kernel.clamp_max(0)])  # (2, O, C, K), both ≥ 0
    used = parts.sum(-1) > 0
    used[0, 0, 0] |= not used.any()  # a kernel of zeros still has a head, that says nothing
    sign, o, c = used.nonzero(as_tuple=True)
    table = parts[sign, o, c].log()
    weight = kernel.new_zeros(len(sign), outputs, inputs)
    weight[torch.arange(len(sign), device=sign.device), o, c] = parts[sign, o, c].sum(-1) * (1 - 2 * sign)
    return table, weight


def _groups(kernel: Tensor) -> int:
    """The most groups with nothing between them."""
    outputs, inputs, _ = kernel.shape
    for groups in range(math.gcd(outputs, inputs), 1, -1):
        if outputs % groups == 0 and inputs % groups == 0:
            blocks = kernel.unflatten(0, (groups, -1)).unflatten(2, (groups, -1)).abs().sum((1, 3, 4))
            if not (blocks - blocks.diag().diag()).any():
                return groups
    return 1
