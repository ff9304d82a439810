"""What distance does to a score.

`Relative`, `Alibi` and `T5Buckets` add p_{i−j} to the log-score (for kernels: multiply sim by exp p_{i−j}).
All of them come down to one table over the offsets that occur, `table(...)`, through which gradients reach
their parameters. `Rotary` turns queries and keys instead, before they are compared.
"""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Real

import torch
from torch import Tensor

from .problem import PositionFacts
from .transforms import backwards, fixed, forward_mode_active, lasting, parts_of, sizes, traced


class Position:
    """Base of all positions. `signature` is what of it can change a plan."""

    signature: tuple
    rotates = False

    def facts(self) -> PositionFacts | None:
        return PositionFacts(repr(self), learned=self._learned(), per_head=self._per_head())

    def _per_head(self) -> bool:
        entries = getattr(self, "entries", None)
        return entries is not None and entries.dim() == 2 and entries.shape[0] > 1

    def _learned(self) -> bool:
        return any(isinstance(part, Tensor) and part.requires_grad for part in parts_of(self))

    def check(self, reach: tuple[int, int], heads: int, dim: int) -> None:
        """Raise if the parameters do not fit. `reach` is how far (back, ahead) a listener hears."""

    def table(self, queries: int, keys: int, heads: int, like: Tensor) -> Tensor:
        """p over all offsets, (heads or 1, queries + keys − 1): entry (queries − 1) + (i − j)."""
        raise NotImplementedError

    def rates(self, heads: int, like: Tensor) -> Tensor:
        """The slope of each head, (heads or 1,), for positions that decay."""
        raise NotImplementedError

    def rotate(self, x: Tensor, start: int | Tensor) -> Tensor:
        """x (..., length, dim) turned, its first row at position `start`, for positions that rotate."""
        raise NotImplementedError


def _offsets(queries: int, keys: int, device) -> Tensor:
    return torch.arange(1 - queries, keys, device=device)


def _check_heads(what: str, rows: int, heads: int) -> None:
    if rows not in (1, heads):
        raise ValueError(f"{what}: got {rows} rows for {heads} heads; give one row, or one a head.")


def _check_numbers(what: str, table: Tensor) -> None:
    if not isinstance(table, Tensor) or not table.is_floating_point():
        got = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise TypeError(f"{what} must be a floating-point tensor, got {got}.")
    if not traced() and table.device.type != "meta":
        bad = torch.isnan(table) | (table == math.inf)
        if bool(bad.any()):
            where = tuple(bad.nonzero()[0].tolist())
            raise ValueError(
                f"{what} is {table[where].item()} at {list(where)}; entries are finite, or −inf to silence."
            )


class Relative(Position):
    r"""Adds p_{i−j}: entry L + (i − j) of a table with 2L + 1 entries, optionally one row a head.

    −inf silences a distance. Distances beyond L are an error, or use the outermost entries with `clamp=True`.

    >>> import torch, heedful
    >>> x = torch.arange(1.0, 6).view(5, 1)
    >>> only_previous = torch.tensor([-torch.inf, -torch.inf, 0.0])       # offsets −1, 0, 1
    >>> out = heedful.attend(x, x, x, position=heedful.Relative(only_previous), neighbors=heedful.Window(1))
    >>> out.flatten()
    tensor([0., 1., 2., 3., 4.])
    """

    def __init__(self, table: Tensor, *, clamp: bool = False):
        _check_numbers("Relative(table)", table)
        if table.dim() not in (1, 2) or table.shape[-1] % 2 == 0:
            raise ValueError(
                f"Relative(table): got shape {tuple(table.shape)}; takes (2L+1,) or (heads, 2L+1), "
                f"entry L + (i−j), so the last dimension must be odd."
            )
        self.entries, self.clamp = table, clamp
        self.signature = ("Relative", tuple(table.shape), clamp, table.requires_grad, table.device)

    @property
    def limit(self) -> int:
        return self.entries.shape[-1] // 2

    def check(self, reach, heads, dim):
        if self.entries.dim() == 2:
            _check_heads("Relative(table)", self.entries.shape[0], heads)
        if not self.clamp and max(reach) > self.limit:
            raise ValueError(
                f"Relative(table): {2 * self.limit + 1} entries reach distance {self.limit}, but distances "
                f"up to {max(reach)} occur. Give {2 * max(reach) + 1} entries, pass clamp=True, or narrow "
                f"neighbors to Window({max(1, self.limit)})."
            )

    def table(self, queries, keys, heads, like):
        offsets = _offsets(queries, keys, like.device)
        table = torch.atleast_2d(self.entries).to(like.device, like.dtype)
        inside = table.index_select(-1, (offsets + self.limit).clamp(0, 2 * self.limit))
        return inside if self.clamp else inside.masked_fill(offsets.abs() > self.limit, -math.inf)

    def __repr__(self):
        return f"Relative({sizes(self.entries)}{', clamp' if self.clamp else ''})"


class Alibi(Position):
    """Adds −slope·|i − j|. Without slopes: 2^(−8h/heads) for head h = 1 … heads, as published.

    >>> import torch, heedful
    >>> heedful.Alibi().table(1, 3, heads=1, like=torch.zeros(1))
    tensor([[-0.0000, -0.0039, -0.0078]])
    """

    def __init__(self, slopes: float | Tensor | None = None):
        if isinstance(slopes, Tensor):
            _check_numbers("Alibi(slopes)", slopes)
            if slopes.dim() > 1:
                raise ValueError(
                    f"Alibi(slopes): got shape {tuple(slopes.shape)}; takes one number, or one a head."
                )
        elif slopes is not None:
            if not isinstance(slopes, Real):
                raise TypeError(
                    f"Alibi(slopes): got {type(slopes).__name__}; takes a number, or a tensor of one a head."
                )
            if not math.isfinite(fixed(slopes)):
                raise ValueError(f"Alibi(slopes={slopes}): must be finite.")
        self.slopes = slopes
        self.signature = (
            "Alibi",
            ("tensor", tuple(slopes.shape), slopes.requires_grad, slopes.device)
            if isinstance(slopes, Tensor)
            else slopes,
        )

    def facts(self):
        return PositionFacts(repr(self), decay=True, learned=self._learned(), per_head=self._per_head())

    def _per_head(self):
        return self.slopes is None or (isinstance(self.slopes, Tensor) and self.slopes.numel() > 1)

    def check(self, reach, heads, dim):
        if isinstance(self.slopes, Tensor) and self.slopes.dim() == 1:
            _check_heads("Alibi(slopes)", self.slopes.numel(), heads)

    def rates(self, heads: int, like: Tensor) -> Tensor:
        """The slope of each head, (heads or 1,)."""
        if self.slopes is None:
            return torch.exp2(-8.0 * torch.arange(1, heads + 1, device=like.device, dtype=like.dtype) / heads)
        return torch.atleast_1d(torch.as_tensor(self.slopes, dtype=like.dtype, device=like.device))

    def table(self, queries, keys, heads, like):
        return -self.rates(heads, like)[:, None] * _offsets(queries, keys, like.device).abs().to(like.dtype)

    def __repr__(self):
        return "Alibi()" if self.slopes is None else "Alibi(slopes)"


class T5Buckets(Position):
    """Adds table[bucket(i − j)]: near distances have a bucket each, far ones share ones that widen like log.

    `table` has one entry a bucket, optionally one row a head. `bidirectional=False` gives all buckets to the
    past (use it with `Causal()`); distances of `max_distance` and more share the last one.

    >>> import torch, heedful
    >>> heedful.T5Buckets(torch.zeros(32)).bucket(torch.tensor([0, 1, 7, 20, 500, -1]))
    tensor([ 0,  1,  7, 10, 15, 17])
    """

    def __init__(self, table: Tensor, *, bidirectional: bool = True, max_distance: int = 128):
        _check_numbers("T5Buckets(table)", table)
        if table.dim() not in (1, 2):
            raise ValueError(
                f"T5Buckets(table): got shape {tuple(table.shape)}; takes (buckets,) or (heads, buckets)."
            )
        buckets = table.shape[-1] // (2 if bidirectional else 1)
        if buckets < 2 or max_distance <= buckets // 2:
            raise ValueError(
                f"T5Buckets: {table.shape[-1]} buckets with max_distance={max_distance}; needs at least 2 "
                f"buckets a direction and max_distance above {buckets // 2}."
            )
        self.entries, self.bidirectional, self.max_distance = table, bidirectional, max_distance
        shape = (tuple(table.shape), bidirectional, max_distance)
        self.signature = ("T5Buckets", *shape, table.requires_grad, table.device)

    def check(self, reach, heads, dim):
        if self.entries.dim() == 2:
            _check_heads("T5Buckets(table)", self.entries.shape[0], heads)

    def bucket(self, offset: Tensor) -> Tensor:
        """The bucket of i − j."""
        buckets = self.entries.shape[-1]
        start = torch.zeros_like(offset)
        if self.bidirectional:
            buckets //= 2
            start = torch.where(offset < 0, buckets, 0)
            distance = offset.abs()
        else:
            distance = offset.clamp_min(0)
        near = buckets // 2
        ratio = torch.log(distance.clamp_min(1).double() / near) / math.log(self.max_distance / near)
        far = (near + (ratio * (buckets - near)).long()).clamp_max(buckets - 1)
        return start + torch.where(distance < near, distance, far)

    def table(self, queries, keys, heads, like):
        table = torch.atleast_2d(self.entries).to(like.device, like.dtype)
        return table.index_select(-1, self.bucket(_offsets(queries, keys, like.device)))

    def __repr__(self):
        return f"T5Buckets({sizes(self.entries)})"


class Rotary(Position):
    """Turns coordinate pair m of q_i by i·θ_m, of k_j by j·θ_m, θ_m = base^(−2m/d): q·k depends on i − j.

    `interleaved` pairs neighbours (0,1), (2,3) …; otherwise the first half pairs with the second. `dims`
    turns only the first so many coordinates.

    >>> import torch, heedful
    >>> x = torch.randn(1, 7, 4)
    >>> heedful.attend(x, x, x, position=heedful.Rotary()).shape
    torch.Size([1, 7, 4])
    """

    rotates = True

    def __init__(self, base: float = 10000.0, *, interleaved: bool = True, dims: int | None = None):
        if base <= 0:
            raise ValueError(f"Rotary(base={base}): must be positive.")
        if dims is not None and (dims < 2 or dims % 2):
            raise ValueError(f"Rotary(dims={dims}): must be even, 2 or more.")
        self.base, self.interleaved, self.dims = base, interleaved, dims
        self.signature = ("Rotary", base, interleaved, dims)

    def facts(self):
        return None  # it acts on query and key; what is left to plan has no position

    def check(self, reach, heads, dim):
        if self.dims is not None and self.dims > dim:
            raise ValueError(f"{self}: turns dims={self.dims} coordinates, but query and key have {dim}.")
        if self.dims is None and dim % 2:
            raise ValueError(
                f"{self}: turns pairs of coordinates, but query and key have {dim}; use an even number, or "
                f"dims={dim - 1} to leave the last alone."
            )

    def rotate(self, x: Tensor, start: int | Tensor) -> Tensor:
        """x of shape (..., length, dim), its first row at position `start`."""
        dims, length = self.dims or x.shape[-1], x.shape[-2]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        turned = x[..., :dims].to(wide)
        if traced() or forward_mode_active() or isinstance(start, Tensor):
            turned = self._turn(turned, torch.arange(length, device=x.device, dtype=wide) + start)
        else:
            turned = self._turn_complex(turned, _turns(self.base, dims, int(start), length, x.device, wide))
        turned = turned.to(x.dtype)
        return turned if dims == x.shape[-1] else torch.cat([turned, x[..., dims:]], -1)

    def _turn(self, x: Tensor, at: Tensor) -> Tensor:
        """Pairs (a, b) → (a cos − b sin, a sin + b cos)."""
        angle = _angles(self.base, x.shape[-1], at)
        cos, sin = angle.cos(), angle.sin()
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if self.interleaved else x.chunk(2, -1)
        a, b = a * cos - b * sin, a * sin + b * cos
        return torch.stack([a, b], -1).flatten(-2) if self.interleaved else torch.cat([a, b], -1)

    def _turn_complex(self, x: Tensor, turns: Tensor) -> Tensor:
        """The same as products of complex numbers, with fewer passes over memory."""
        if not self.interleaved:
            z = torch.complex(*x.chunk(2, -1)) * turns
            return torch.cat([z.real, z.imag], -1)
        pairs = x.unflatten(-1, (-1, 2))
        if pairs.stride(-1) != 1 or pairs.storage_offset() % 2 or any(n % 2 for n in pairs.stride()[:-1]):
            pairs = pairs.contiguous()
        return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2)

    def turns(self, dims: int, length: int, like: Tensor) -> Tensor:
        """The complex numbers pairs are multiplied by at positions 0 … length − 1, (length, dims / 2)."""
        return _turns(self.base, dims, 0, length, like.device, like.dtype)

    def apply(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotate(query, key.shape[-2] - query.shape[-2]), self.rotate(key, 0)

    def __repr__(self):
        return f"Rotary(base={self.base:g})"


def _angles(base: float, dims: int, at: Tensor) -> Tensor:
    """i·θ_m for these positions i, (length, dims / 2)."""
    return at[:, None] * base ** (-torch.arange(0, dims, 2, device=at.device, dtype=at.dtype) / dims)


def _turns(base: float, dims: int, start: int, length: int, device, dtype) -> Tensor:
    """cos iθ_m + √−1 sin iθ_m for positions from `start` on; those from 0 on are remembered."""
    if start < 0:  # the first of more queries than keys
        angle = _angles(base, dims, torch.arange(start, start + length, device=device, dtype=dtype))
        return torch.complex(angle.cos(), angle.sin())
    room = max(64, 1 << (start + length - 1).bit_length())
    return _kept_turns(base, dims, room, device, dtype)[start : start + length]


@lru_cache(maxsize=32)
def _kept_turns(base: float, dims: int, length: int, device, dtype) -> Tensor:
    with lasting():
        angle = _angles(base, dims, torch.arange(length, device=device, dtype=dtype))
        return torch.complex(angle.cos(), angle.sin())


def toeplitz_block(table: Tensor, rows: tuple[int, int], columns: tuple[int, int], keys: int) -> Tensor:
    """The block p_{i−j} of a table over all offsets, (..., rows, columns), without an index a pair.

    Row r, column s holds entry r + keys − 1 − s: each row is its neighbour's run of the table shifted by one.
    """
    if torch.compiler.is_compiling():  # unfolding would fix the lengths; a compiler need not store the index
        i = torch.arange(rows[0], rows[1], device=table.device)[:, None]
        return table[..., i + (keys - 1) - torch.arange(columns[0], columns[1], device=table.device)]
    height, width = rows[1] - rows[0], columns[1] - columns[0]
    first = rows[0] + keys - columns[1]
    run = table[..., first : first + height + width - 1].flip(-1)
    return backwards(run.unfold(-1, width, 1), -2)
