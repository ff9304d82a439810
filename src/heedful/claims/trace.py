"""The graph a program computes, read off autograd's record of it: who enters whom, through which weight."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Edge = tuple[str, str, str]  # from, to, through

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "LinearBackward", "MvBackward")


def edges(named: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> set[Edge]:
    """From each named tensor to each whose computation it enters directly, and the weights on the way.

    >>> import torch
    >>> x, W = torch.ones(1, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    >>> y = torch.sigmoid(x @ W.T)
    >>> edges({"x": x, "y": y}, {"W": W})
    {('x', 'y', 'W')}
    """
    places = {id(tensor): name for name, tensor in named.items() if tensor.grad_fn is None}
    matrices = {id(tensor): name for name, tensor in weights.items()}
    nodes = {tensor.grad_fn: name for name, tensor in named.items() if tensor.grad_fn is not None}
    found: set[Edge] = set()
    for name, tensor in named.items():
        if tensor.grad_fn is not None:
            for source, through in _sources(tensor.grad_fn, nodes, places, matrices, first=True):
                if source:
                    found.add((source, name, "".join(sorted(through))))
    return found


def _sources(function, nodes, places, matrices, first: bool = False) -> set[tuple[str, frozenset[str]]]:
    """(tensor, weights on the way) of every way back to a named tensor; tensor "" for a bare weight."""
    if function is None:
        return set()
    if not first and function in nodes:
        return {(nodes[function], frozenset())}
    variable = getattr(function, "variable", None)
    if variable is not None:
        if id(variable) in matrices:
            return {("", frozenset([matrices[id(variable)]]))}
        return {(places[id(variable)], frozenset())} if id(variable) in places else set()
    parts = [_sources(each, nodes, places, matrices) for each, _ in function.next_functions]
    if not function.name().startswith(PRODUCTS) or len(parts) < 2:
        return set().union(*parts)
    *added, left, right = parts  # addmm(a, b, c) = a + b c: the weights of b are on the way of c, not of a
    both = set()
    for one, two in ((left, right), (right, left)):
        through: frozenset[str] = frozenset().union(*(weights for source, weights in two if not source))
        both |= {(source, weights | through) for source, weights in one if source}
    return both.union(*added)
