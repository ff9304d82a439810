"""Random numbers of many seeds at once: under vmap, each copy draws what it would draw if it ran alone.

`vmap` knows two kinds of randomness, the same for all copies or one draw for all of them together; in neither
does a copy get the numbers of its own seed. Here every function that draws is caught before vmap sees it and
run once a seed, with torch's generators in that seed's state, and the results are stacked. So a dropout, a
`rand` or the seed that `attend` takes for its own dropout come out bit for bit as in a run of that seed
alone. Dropout's product with its mask is done for all seeds together.

Since it sees every function anyway, it also takes the short way to a cross-entropy: vmap's rule writes it out
in some thirty small operations, which take longer than the network before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..kernels import batching

_PLAIN = [
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
    torch.rand_like,
    torch.randn_like,
    torch.randint_like,
    torch.bernoulli,
    torch.normal,
    torch.poisson,
    torch.multinomial,
    torch.binomial,
    Tensor.bernoulli,
    Tensor.multinomial,
    F.gumbel_softmax,
    # These draw little or nothing, but vmap has no rule for them: one seed after another is what can be had.
    torch.lstm,
    torch.gru,
    torch.rnn_tanh,
    torch.rnn_relu,
]
# Given a generator and nothing else that differs, they need not be told apart by the global one.
_FACTORIES = {torch.rand, torch.randn, torch.randint, torch.randperm}
_FILLING = "bernoulli_ uniform_ normal_ random_ exponential_ cauchy_ log_normal_ geometric_"
_IN_PLACE = [getattr(Tensor, name) for name in _FILLING.split()]
# These draw in training only. Their signatures say when; a call that draws nothing is left to vmap.
_DROPPING: dict[Callable, Callable[..., bool]] = {
    F.dropout: lambda input, p=0.5, training=True, inplace=False: training and p > 0,
    torch.dropout: lambda input, p, train: train and p > 0,
    F.dropout1d: lambda input, p=0.5, training=True, inplace=False: training and p > 0,
    F.dropout2d: lambda input, p=0.5, training=True, inplace=False: training and p > 0,
    F.dropout3d: lambda input, p=0.5, training=True, inplace=False: training and p > 0,
}
_SOMETIMES: dict[Callable, Callable[..., bool]] = {
    F.alpha_dropout: lambda input, p=0.5, training=False, inplace=False: training and p > 0,
    F.feature_alpha_dropout: lambda input, p=0.5, training=False, inplace=False: training and p > 0,
    F.rrelu: lambda input, lower=0.125, upper=1 / 3, training=False, inplace=False: training,
    F.scaled_dot_product_attention: lambda q, k, v, mask=None, dropout_p=0.0, *rest, **more: dropout_p > 0,
    F.multi_head_attention_forward: lambda *arguments, training=True, dropout_p=0.0, **more: (
        training and (arguments[10] if len(arguments) > 10 else dropout_p) > 0
    ),
}
_DRAWS = {*_PLAIN, *_IN_PLACE, *_DROPPING, *_SOMETIMES}


class Streams(TorchFunctionMode):
    """A stream of random numbers for each seed.

    Args:
        states: the state of each seed's generator on the CPU, as `torch.get_rng_state()` gives it. Those of a
            CUDA device are added with `add_cuda`.

    Enter it inside the vmapped function, `with streams.within(index)`, where `index` counts the seeds (an
    argument vmapped over). Every function of torch that draws then draws for each seed from its own stream.

    >>> def draw(index):
    ...     with streams.within(index):
    ...         return torch.rand(3)
    >>> states = [torch.manual_seed(seed).get_state() for seed in (5, 6)]
    >>> streams = Streams(states)
    >>> both = torch.vmap(draw)(torch.arange(2))
    >>> _ = torch.manual_seed(6)
    >>> torch.equal(both[1], torch.rand(3))
    True
    """

    def __init__(self, states: list[Tensor]):
        super().__init__()
        self.cpu = [_generator("cpu", state) for state in states]
        self.cuda: list[torch.Generator] | None = None
        self._index: Tensor | None = None

    def add_cuda(self, device: torch.device, states: list[Tensor]) -> None:
        """The streams of a CUDA device, too, as `torch.cuda.get_rng_state(device)` gives them."""
        self.cuda = [_generator(device, state) for state in states]

    def __len__(self) -> int:
        return len(self.cpu)

    def keep(self, which: list[int]) -> None:
        """Go on with these seeds only."""
        self.cpu = [self.cpu[n] for n in which]
        self.cuda = None if self.cuda is None else [self.cuda[n] for n in which]

    @contextmanager
    def within(self, index: Tensor) -> Iterator[None]:
        self._index = index
        with self:
            yield

    @contextmanager
    def seed(self, place: int) -> Iterator[None]:
        """Torch's own generators in the state of one seed; what is drawn from them moves that seed's on."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.cpu[place].get_state())
        if self.cuda is not None:
            device = self.cuda[place].device
            before_cuda = torch.cuda.get_rng_state(device)
            torch.cuda.set_rng_state(self.cuda[place].get_state(), device)
        try:
            yield
        finally:
            self.cpu[place].set_state(torch.get_rng_state())
            torch.set_rng_state(before)
            if self.cuda is not None:
                self.cuda[place].set_state(torch.cuda.get_rng_state(device))
                torch.cuda.set_rng_state(before_cuda, device)

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function not in _DRAWS:
            return (_cross_entropy if function is F.cross_entropy else function)(*arguments, **options)
        if options.get("generator") is not None:
            raise ValueError(
                f"{_name(function)} draws from a generator of its own, which the seeds would share; let it "
                f"draw from torch's generator, which is seeded for each."
            )
        if function in _DROPPING:
            if not _DROPPING[function](*arguments, **options):
                return function(*arguments, **options)
            return self._dropped(function, *arguments, **options)
        if function in _SOMETIMES and not _SOMETIMES[function](*arguments, **options):
            return function(*arguments, **options)
        if function in _IN_PLACE:
            return self._filled(function, *arguments, **options)
        if function in _FACTORIES and not any(isinstance(part, Tensor) for part in arguments):
            own = self.cpu
            if self.cuda is not None:
                device = torch.device(options.get("device") or torch.get_default_device())
                own = self.cuda if device.type == "cuda" else self.cpu
            return batching.apply(
                _Drawn, self._index, lambda: [function(*arguments, generator=g, **options) for g in own]
            )
        return self._apart(function, arguments, options)

    def _dropped(self, function, input, *arguments, **options):
        """x · mask: only the masks are drawn seed by seed, in the order in which the numbers of x lie."""
        order = sorted(range(input.dim()), key=lambda n: (-input.stride(n), n))
        back = [order.index(n) for n in range(len(order))]
        shape = [input.shape[n] for n in order]
        inplace = options.pop("inplace", False) or (len(arguments) > 2 and arguments[2])
        p = options.get("p", arguments[0] if arguments else 0.5)
        if function in (F.dropout, torch.dropout) and input.device.type == "cpu" and p < 1:
            mask = batching.apply(_Drawn, self._index, lambda: self._masks(shape, input.dtype, p)).permute(
                back
            )
        else:
            ones = torch.ones(shape, dtype=input.dtype, device=input.device).permute(back)
            mask = self._apart(function, (ones, *arguments[:2]), options)
        return input.mul_(mask) if inplace else input * mask

    def _masks(self, shape: list[int], dtype: torch.dtype, p: float) -> Tensor:
        """What torch's own dropout multiplies by on the CPU, drawn from each seed's stream as it draws it."""
        masks = torch.empty((len(self), *shape), dtype=dtype)
        for mask, generator in zip(masks, self.cpu, strict=True):
            mask.bernoulli_(1 - p, generator=generator)
        return masks.div_(1 - p)

    def _filled(self, function, self_, *arguments, **options):
        drawn = self._apart(
            lambda x, *rest, **more: function(x.clone(), *rest, **more), (self_, *arguments), options
        )
        if not torch._C._functorch.is_batchedtensor(self_):
            raise ValueError(
                f"{_name(function)} would fill a tensor that all seeds share; use one made from the input "
                f"(x.new_empty(…)), or a function that makes its own (torch.rand, torch.bernoulli)."
            )
        return self_.copy_(drawn)

    def _apart(self, function: Callable, arguments: tuple, options: dict[str, Any]):
        flat, form = tree_flatten((arguments, options))
        result: list[Any] = []
        result_form: Any = None

        def alone(place: int, *flat: Any) -> list[Tensor]:
            nonlocal result, result_form
            arguments, options = tree_unflatten(list(flat), form)
            with self.seed(place):
                result, result_form = tree_flatten(function(*arguments, **options))
            return [part for part in result if isinstance(part, Tensor)]

        drawn = iter(batching.apply(_Apart, self._index, alone, *flat))
        result = [next(drawn) if isinstance(part, Tensor) else part for part in result]
        return tree_unflatten(result, result_form)


# What F.cross_entropy tells a mode of its other arguments, whether or not they were given.
_UNTOLD = {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None, "label_smoothing": 0.0}


def _cross_entropy(input, target, *arguments, reduction="mean", **options):
    """−log softmax(input) at the target: F.cross_entropy of usual arguments, in a few operations."""
    usual = not arguments and all(name in _UNTOLD and options[name] == _UNTOLD[name] for name in options)
    if usual and input.dim() == 2 and target.dim() == 1 and target.dtype == torch.long:
        own, differ = (torch._C._functorch.is_batchedtensor(x) for x in (input, target))
        plain = own and not differ and len(target) == len(input) > 0 and batching.only_vmap()
        # A negative target is to be ignored. To look for one on a GPU would be to wait for it.
        plain = plain and target.device.type == "cpu" and int(target.min()) >= 0
        if plain and reduction in ("mean", "sum", "none"):
            return batching.apply(_CrossEntropy, input, target, reduction)
    return F.cross_entropy(input, target, *arguments, reduction=reduction, **options)


class _CrossEntropy(torch.autograd.Function):
    """Of many copies' inputs and one target. Its rule for vmap, which steps outside, is all it is made for.

    Classes go first: of a few in each row, one row after another, a softmax takes twenty times as long.
    """

    @staticmethod
    def forward(input, target, reduction):
        raise RuntimeError("Streams are for functions under vmap.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, input, target, reduction):
        input = input.movedim(in_dims[0], 0).permute(2, 0, 1).contiguous()  # (classes, copies, rows)
        at = target.expand(1, *input.shape[1:])
        loss = -torch.log_softmax(input, 0).gather(0, at)[0]
        return (loss if reduction == "none" else getattr(loss, reduction)(1)), 0


class _Drawn(torch.autograd.Function):
    """draw() gives what each seed draws; stacked. Its rule for vmap, which steps outside, is all it is made
    for.
    """

    @staticmethod
    def forward(index, draw):
        raise RuntimeError("Streams are for functions under vmap.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, index, draw):
        drawn = draw()
        return drawn if isinstance(drawn, Tensor) else torch.stack(drawn), 0


class _Apart(torch.autograd.Function):
    """alone(place, *arguments) for each seed, stacked; its rule for vmap is all it is made for."""

    @staticmethod
    def forward(index, alone, *flat):
        raise RuntimeError("Streams are for functions under vmap.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, index, alone, *flat):
        found = []
        for place in range(info.batch_size):
            own = (
                x if dim is None else x.select(dim, place) for x, dim in zip(flat, in_dims[2:], strict=True)
            )
            found.append(alone(place, *own))
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True)), (0,) * len(found[0])


def _name(function: Callable) -> str:
    return getattr(function, "__name__", repr(function))


def _generator(device: str | torch.device, state: Tensor) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator
