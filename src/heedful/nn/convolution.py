"""Convolutions that say what lies beyond the edge: how far they look past it, and what they see there."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from .checks import check_choice, check_count

AMOUNTS = ("valid", "same", "full")
MODES = {"zeros": "constant", "circular": "circular", "reflect": "reflect", "replicate": "replicate"}
Padding = str | int | Sequence[int]


def pad(x: Tensor, pads: Sequence[tuple[int, int]], mode: str = "zeros") -> Tensor:
    """x continued by (before, after) entries along each of its last dimensions.

    >>> import torch
    >>> x = torch.tensor([[[1, 2, 3]]])
    >>> for mode in ("zeros", "circular", "reflect", "replicate"):
    ...     print(mode, pad(x, [(2, 2)], mode).flatten().tolist())
    zeros [0, 0, 1, 2, 3, 0, 0]
    circular [2, 3, 1, 2, 3, 1, 2]
    reflect [3, 2, 1, 2, 3, 2, 1]
    replicate [1, 1, 1, 2, 3, 3, 3]
    """
    check_choice("pad", "mode", mode, MODES)
    if len(pads) > x.dim():
        raise ValueError(f"pad(): pads has {len(pads)} dimensions, x only {x.dim()}.")
    for (before, after), size in zip(pads, x.shape[x.dim() - len(pads) :], strict=True):
        most = {"circular": size, "reflect": size - 1}.get(mode)
        if most is not None and max(before, after) > most:
            raise ValueError(
                f"pad(mode={mode!r}): {max(before, after)} entries cannot come from {size}; "
                f"at most {most} can. Use a larger input, less padding or another mode."
            )
    flat = [amount for both in reversed(pads) for amount in both]  # torch begins with the last dimension
    return F.pad(x, flat, MODES[mode]) if any(flat) else x


def pad_amount(padding: str | int, kernel: int, dilation: int = 1) -> tuple[int, int]:
    """How many entries (before, after) a padding adds: valid 0, same d(k−1) in all, full d(k−1) to each side.

    >>> pad_amount("valid", kernel=3), pad_amount("same", kernel=3), pad_amount("full", kernel=3)
    ((0, 0), (1, 1), (2, 2))
    >>> pad_amount("same", kernel=4), pad_amount(5, kernel=3)
    ((1, 2), (5, 5))
    """
    if isinstance(padding, bool) or not (padding in AMOUNTS if isinstance(padding, str) else padding >= 0):
        hint = f" For that mode write padding='full', mode={padding!r}." if padding in MODES else ""
        raise ValueError(
            f"padding={padding!r}: takes 'valid', 'same', 'full' or a number of entries, 0 or more.{hint}"
        )
    if isinstance(padding, int):
        return padding, padding
    span = dilation * (kernel - 1)
    return {"valid": (0, 0), "same": (span // 2, span - span // 2), "full": (span, span)}[padding]


class Conv1d(nn.Conv1d):
    r"""y_o(t) = b_o + Σ_c Σ_m w_{ocm} x_c(s·t + d·m − p): torch's, with its padding said in words.

    x is (N, inputs, T); s is the stride, d the dilation, p the padding before, m runs over the kernel.

    Args:
        padding: how far it looks past the edges. "valid": not at all; "same": so that at stride 1 as many
            places come out as went in; "full": while one entry of the kernel still touches x; or a number.
        mode: what it sees there: "zeros", "circular" (the other end), "reflect" or "replicate" (the edge).

    >>> import torch
    >>> x = torch.randn(1, 2, 10)
    >>> [Conv1d(2, 5, kernel=3, padding=padding)(x).shape[-1] for padding in ("valid", "same", "full")]
    [8, 10, 12]
    """

    said: Padding  # the padding as given
    pads: list[tuple[int, int]]  # entries before and after, for each direction
    mode: str

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        padding: Padding = "same",
        mode: str = "zeros",
    ):
        _check_numbers("Conv1d", inputs, outputs, groups, kernel=kernel, stride=stride, dilation=dilation)
        super().__init__(inputs, outputs, kernel, stride, 0, dilation, groups, bias)
        _take_padding(self, padding, mode)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_padded(self, x, "T"))

    def extra_repr(self) -> str:
        return _describe(self)


class Conv2d(nn.Conv2d):
    r"""y_o(i, j) = b_o + Σ_c Σ_{m,n} w_{ocmn} x_c(s·i + d·m − p, s·j + d·n − p): `Conv1d` in the plane.

    x is (N, inputs, H, W). Kernel, stride, dilation and padding are one number for both directions or a pair.

    >>> import torch
    >>> around = Conv2d(3, 8, kernel=3, padding="full", mode="circular")  # two pixels from the other side
    >>> around(torch.randn(1, 3, 32, 32)).shape
    torch.Size([1, 8, 34, 34])
    """

    said: Padding  # the padding as given
    pads: list[tuple[int, int]]  # entries before and after, for each direction
    mode: str

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        *,
        stride: int | tuple[int, int] = 1,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding: Padding = "same",
        mode: str = "zeros",
    ):
        _check_numbers("Conv2d", inputs, outputs, groups, kernel=kernel, stride=stride, dilation=dilation)
        super().__init__(inputs, outputs, kernel, stride, 0, dilation, groups, bias)
        _take_padding(self, padding, mode)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_padded(self, x, "H, W"))

    def extra_repr(self) -> str:
        return _describe(self)


def _check_numbers(
    where: str, inputs: int, outputs: int, groups: int, **sizes: int | tuple[int, ...]
) -> None:
    check_count(where, inputs=inputs, outputs=outputs, groups=groups)
    if inputs % groups or outputs % groups:
        raise ValueError(f"{where}(groups={groups}): must divide inputs={inputs} and outputs={outputs}.")
    for name, size in sizes.items():
        for each in size if isinstance(size, (tuple, list)) else [size]:
            check_count(where, **{name: each})


def _take_padding(conv, padding: Padding, mode: str) -> None:
    where = type(conv).__name__
    check_choice(where, "mode", mode, MODES)
    amounts = [padding] * len(conv.kernel_size) if isinstance(padding, (str, int)) else list(padding)
    if len(amounts) != len(conv.kernel_size):
        raise ValueError(f"{where}(padding={padding!r}): takes one, or {len(conv.kernel_size)} of them.")
    conv.said, conv.mode = padding, mode
    conv.pads = [pad_amount(*each) for each in zip(amounts, conv.kernel_size, conv.dilation, strict=True)]
    if mode == "zeros" and all(before == after for before, after in conv.pads):
        conv.padding = tuple(before for before, _ in conv.pads)  # the kernel's own zeros cost nothing


def _padded(conv, x: Tensor, places: str) -> Tensor:
    if x.dim() != 2 + len(conv.kernel_size) or x.shape[1] != conv.in_channels:
        raise ValueError(f"{conv}: got shape {tuple(x.shape)}; takes (N, {conv.in_channels}, {places}).")
    for size, (before, after), kernel, dilation in zip(
        x.shape[2:], conv.pads, conv.kernel_size, conv.dilation, strict=True
    ):
        if size + before + after <= dilation * (kernel - 1):
            least = dilation * (kernel - 1) + 1
            raise ValueError(
                f"{conv}: got shape {tuple(x.shape)}; {size} with its padding is {size + before + after}, "
                f"and the kernel needs {least}."
            )
    return x if any(conv.padding) else pad(x, conv.pads, conv.mode)


def _describe(conv) -> str:
    one = lambda sizes: sizes[0] if len(set(sizes)) == 1 else tuple(sizes)  # noqa: E731
    shown = {"kernel": one(conv.kernel_size), "padding": repr(conv.said)}
    given = {
        "stride": one(conv.stride),
        "dilation": one(conv.dilation),
        "groups": conv.groups,
        "bias": conv.bias is not None,
        "mode": conv.mode,
    }
    usual = {"stride": 1, "dilation": 1, "groups": 1, "bias": True, "mode": "zeros"}
    shown |= {name: value for name, value in given.items() if value != usual[name]}
    sizes = f"{conv.in_channels}, {conv.out_channels}, "
    return sizes + ", ".join(f"{name}={value}" for name, value in shown.items())
