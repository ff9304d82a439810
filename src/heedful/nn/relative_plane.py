"""Relative attention in the plane: what `RelativeAttention` is to a 1-D convolution, for images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import Softmax, attend
from .checks import check_choice, check_count
from .convolution import MODES, pad, pad_amount


class RelativeAttention2d(nn.Module):
    r"""y_i = b + Σ_h W^h Σ_m a^h_im x_{i+m},   a^h_im = softmax_m(p^h_m + q^h_i·k^h_{i+m}/√d)

    Every place listens to the `kernel` × `kernel` places around it: x is (N, inputs, H, W). `table` holds p,
    (heads, kernel²); `weight` holds W_o W_v of each head, (heads, outputs, inputs).

    Without `content` the scores are p alone, and the layer is the convolution with kernel Σ_h a^h_m W^h,
    which is how it is computed. With `content=d`, queries and keys of width d are compared as well. Stride,
    padding and mode are those of `Conv2d`; what padding shows beyond the edge is heard like anything else.

    >>> layer = RelativeAttention2d(3, 8, kernel=3, heads=2, content=4, stride=2)
    >>> layer(torch.randn(1, 3, 16, 16)).shape
    torch.Size([1, 8, 8, 8])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        *,
        heads: int = 1,
        content: int = 0,
        stride: int = 1,
        bias: bool = True,
        padding: str | int = "same",
        mode: str = "zeros",
    ):
        super().__init__()
        where = "RelativeAttention2d"
        check_count(where, inputs=inputs, outputs=outputs, kernel=kernel, heads=heads, stride=stride)
        check_count(where, content=content, least=0)
        check_choice(where, "mode", mode, MODES)
        self.kernel, self.heads, self.content = kernel, heads, content
        self.stride, self.padding, self.mode = stride, padding, mode
        self.pads = [pad_amount(padding, kernel)] * 2
        self.table = nn.Parameter(torch.randn(heads, kernel**2))
        self.weight = nn.Parameter(torch.empty(heads, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.query = nn.Parameter(torch.empty(heads, content, inputs)) if content else None
        self.key = nn.Parameter(torch.empty(heads, content, inputs)) if content else None
        for matrix in (self.weight, self.query, self.key):
            if matrix is not None:
                nn.init.normal_(matrix, std=inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.weight.shape[2]
        if x.dim() != 4 or x.shape[1] != inputs:
            raise ValueError(f"{self}: got shape {tuple(x.shape)}; takes (N, {inputs}, H, W).")
        x = pad(x, self.pads, self.mode)
        if min(x.shape[2:]) < self.kernel:
            raise ValueError(
                f"{self}: needs {self.kernel} places each way, padding included; got {tuple(x.shape[2:])}."
            )
        if self.query is None or self.key is None:
            taps = torch.einsum("hm,hoc->ocm", self.table.softmax(-1), self.weight)
            return F.conv2d(x, taps.unflatten(-1, (self.kernel, self.kernel)), self.bias, self.stride)
        windows = x.unfold(2, self.kernel, self.stride).unfold(3, self.kernel, self.stride)
        heard = windows.flatten(4).permute(0, 2, 3, 4, 1)  # (N, rows, columns, kernel², inputs)
        centre = heard[..., self.kernel**2 // 2, :]
        query = torch.einsum("nijc,hdc->nijhd", centre, self.query).unsqueeze(-2)
        key = torch.einsum("nijmc,hdc->nijhmd", heard, self.key)
        # p as one more product, of 1 and p·√d: the scores are q·k/√d + p.
        places = (self.table * self.content**0.5)[..., None].expand(*key.shape[:-1], 1)
        query = torch.cat([query, query.new_ones(*query.shape[:-1], 1)], -1)
        value = heard.unsqueeze(3).expand(-1, -1, -1, self.heads, -1, -1)
        similarity = Softmax(scale=self.content**-0.5)
        y = attend(query, torch.cat([key, places], -1), value, similarity=similarity).squeeze(-2)
        y = torch.einsum("nijhc,hoc->noij", y, self.weight)
        return y if self.bias is None else y + self.bias[:, None, None]

    def extra_repr(self) -> str:
        heads, outputs, inputs = self.weight.shape
        content = f", content={self.content}" if self.content else ""
        return f"{inputs}, {outputs}, kernel={self.kernel}, heads={heads}{content}, padding={self.padding!r}"
