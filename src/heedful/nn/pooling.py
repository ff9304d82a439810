"""Max-pooling is attention too: everyone asks for the largest in a window, and hears it alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..attention import Argmax, Relative, Softmax, Window, attend
from .checks import check_count


class RelativeMaxPool(nn.Module):
    r"""y_i = Σ_m a_im x_{i+m},   a_im = softmax_m(β x_{i+m}) → y_i = max_m x_{i+m} as β → ∞

    Every listener asks with query 1 and every place answers with its value as key: attention in a window, one
    head a channel. `beta=None` is the limit (`Argmax`), exactly max-pooling; with a number, y falls short of
    the maximum by at most log(kernel)/β. x is (N, channels, T); places beyond the edges are not heard.

    (Were the query x_i itself, as some texts have it, a listener with x_i = 0 would hear the mean, and one
    with x_i < 0 the minimum.)

    >>> x = torch.tensor([[[1.0, 5.0, 2.0, 0.0, 3.0, 4.0]]])
    >>> RelativeMaxPool(kernel=3)(x)
    tensor([[[5., 4.]]])
    >>> RelativeMaxPool(kernel=3, beta=2.0)(x)
    tensor([[[4.9912, 3.8797]]])
    """

    def __init__(
        self,
        kernel: int,
        *,
        stride: int | None = None,
        dilation: int = 1,
        padding: int = 0,
        beta: float | None = None,
    ):
        super().__init__()
        stride = kernel if stride is None else stride
        check_count("RelativeMaxPool", kernel=kernel, stride=stride, dilation=dilation)
        check_count("RelativeMaxPool", padding=padding, least=0)
        if padding > kernel // 2:
            raise ValueError(
                f"RelativeMaxPool(padding={padding}): takes at most half of kernel={kernel}, or a window "
                f"might hold nothing."
            )
        if beta is not None and not 0 <= beta < math.inf:
            raise ValueError(
                f"RelativeMaxPool(beta={beta}): takes a number, 0 or more, or None for the limit."
            )
        self.kernel, self.stride, self.dilation, self.padding, self.beta = (
            kernel,
            stride,
            dilation,
            padding,
            beta,
        )

    def forward(self, x: Tensor) -> Tensor:
        span = self.dilation * (self.kernel - 1)
        listeners = x.shape[-1] + 2 * self.padding - span
        if x.dim() != 3 or listeners < 1:
            least = span + 1 - 2 * self.padding
            raise ValueError(f"{self}: got shape {tuple(x.shape)}; takes (N, channels, T), T ≥ {least}.")
        # Ends align, so listener i, whose window begins `padding` before i, is span − 2·padding further on.
        taps = span - self.padding - self.dilation * torch.arange(self.kernel, device=x.device)
        reach = max(1, span - self.padding, self.padding)
        table = x.new_full((2 * reach + 1,), -math.inf).index_fill(0, reach + taps, 0.0)
        values = x.unsqueeze(-1)  # (N, channels, T, 1): a channel is a head
        out = attend(
            x.new_ones(*x.shape[:2], listeners, 1),
            values,
            values,
            similarity=Argmax() if self.beta is None else Softmax(scale=self.beta),
            neighbors=Window(reach),
            position=Relative(table),
        )
        return out[:, :, :: self.stride, 0]

    def extra_repr(self) -> str:
        beta = "" if self.beta is None else f", beta={self.beta:g}"
        return f"{self.kernel}, stride={self.stride}, dilation={self.dilation}, padding={self.padding}{beta}"
