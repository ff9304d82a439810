"""Who hears whom: the future, other samples of the batch, the training set."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...graphs import Graph
from .. import leaks
from ..facts import Batch
from ..findings import Finding, finding
from ..graph import first_tensor
from ..watching.samples import first_input, map_tensors
from .common import first_batch, rule


@rule("normal")
def causal(facts):
    if not facts.shifted:
        return
    for batch in facts.batches:
        calls = facts.models.get(id(batch.model))
        if calls is None or calls.initial is None:
            continue
        try:
            asked, x = _of_one_input(calls.initial, batch, 2)
            found = leaks.check_causal(asked, x)
        except ValueError as error:
            facts.note(f"whether outputs hear later inputs was not asked: {error}")
            return
        facts.measured["causal-leak"] = 0.0
        if found is not None:
            facts.measured["causal-leak"] = found.measured or 0.0
            found.where = _module(found, asked)
            yield found
        return


@rule("normal")
def batches_apart(facts):
    chosen = first_batch(facts)
    if chosen is None or len(set(facts.fingerprints)) < 2:
        return  # one batch for all steps: the axis may be nodes, which do hear each other
    _, initial, batch = chosen
    try:
        asked, x = _of_one_input(initial, batch, 8)
    except ValueError as error:
        facts.note(f"whether samples of a batch hear each other was not asked: {error}")
        return
    if x.dim() < 2 or len(x) < 2:
        return
    try:
        found = leaks.check_batch_independence(asked, x)
    except ValueError:
        return
    facts.measured["batch-leak"] = 0.0 if found is None else float(found.measured or 0.0)
    if found is None:
        return
    if x.dim() > 2 and x.shape[1] > 1:
        try:
            if leaks.check_batch_independence(*_of_one_input(initial, batch), axis=1) is None:
                return  # the batch is the second axis
        except ValueError:
            pass
    if facts.crossed:
        yield finding(
            "view-mixes-axes",
            found.measured,
            f"{facts.crossed}; {found.what}",
            where=type(initial).__name__,
            cause="view/reshape keeps the order of numbers in memory: rows are made of several samples.",
        )
    found.where = _module(found, asked) or type(initial).__name__
    yield found


def _module(found: Finding, asked: nn.Module) -> str:
    """The module a finding names, as its author calls it; nothing where it is the model itself."""
    return f"{found.where}.".removeprefix("model.")[:-1] if isinstance(asked, _Held) else found.where


class _Held(nn.Module):
    """model(x, …) as a function of x, the rest as it is."""

    def __init__(self, model: nn.Module, x: Tensor, given: tuple):
        super().__init__()
        self.model, self.x, self.given = model, x, given

    def forward(self, x, others=None):
        arguments, options = map_tensors(
            lambda entry: x if entry is self.x else entry if others is None else others(entry), self.given
        )
        return self.model(*arguments, **options)


def _of_one_input(model: nn.Module, batch: Batch, samples: int | None = None) -> tuple[nn.Module, Tensor]:
    """(the model as a function of its first input, that input's first samples).

    Targets may stand beside it, for a loss inside; a ValueError where what does has a part in the output.
    """
    whole = first_input(batch.arguments, batch.options)
    if whole is None or whole.dim() == 0:
        raise ValueError(f"{type(model).__name__} takes no tensor of samples")

    def some(entry: Tensor) -> Tensor:
        return entry[:samples] if entry.dim() > 0 and len(entry) == len(whole) else entry

    given = map_tensors(some, (batch.arguments, batch.options))
    x = first_input(*given)
    assert x is not None
    if len(batch.arguments) == 1 and not batch.options:
        return model, x
    held = _Held(model, x, given)
    if not _plain(given) or _others_matter(held, x):
        raise ValueError(f"{type(model).__name__} takes more than one input")
    return held, x


def _plain(given) -> bool:
    """Tensors and numbers; of other objects, a graph say, it is not known what they say of whom."""
    if isinstance(given, (tuple, list)):
        return all(_plain(entry) for entry in given)
    if isinstance(given, dict):
        return all(_plain(entry) for entry in given.values())
    return given is None or isinstance(given, (Tensor, bool, int, float, str))


def _others_matter(held: _Held, x: Tensor) -> bool:
    """Whether outputs change when the numbers of all other tensors change places."""
    constant = []

    def shuffled(entry: Tensor) -> Tensor:
        mixed = entry.flatten()[torch.randperm(entry.numel(), device=entry.device)].view_as(entry)
        constant.append(torch.equal(mixed, entry))
        return mixed

    try:
        with leaks.asked(held), torch.no_grad():
            before, after = (first_tensor(held(x, others))[0] for others in (None, shuffled))
    except Exception:
        return True  # lengths that must be sorted, a matrix that must stay square
    # A constant says nothing: a mask that lets all pass has a part in what comes out.
    return before is None or after is None or any(constant) or not torch.equal(before, after)


@rule("normal")
def numbering_of_nodes(facts):
    """A model that takes nodes and a graph of them must not care how they are numbered."""
    chosen = first_batch(facts)
    if chosen is None:
        return
    _, initial, batch = chosen
    if len(batch.arguments) != 2 or batch.options or not isinstance(batch.arguments[0], torch.Tensor):
        return
    x, graph = batch.arguments
    if x.dim() < 2 or not x.is_floating_point() or not _relates(graph, x.shape[-2]):
        return
    nodes = x.shape[-2]
    if any(nodes in p.shape for p in initial.parameters()):
        return  # something is learned for each node by its number
    with torch.no_grad():
        output = first_tensor(initial(x, graph))[0]
    if output is None:
        return
    each = output.dim() >= 2 and output.shape[-2] == nodes
    found = leaks.check_permutation(initial, x, graph, invariant=not each)
    facts.measured["not-equivariant"] = 0.0 if found is None else float(found.measured or 0.0)
    if found is not None:
        yield found


def _relates(graph, nodes: int) -> bool:
    """Whether this is a graph of so many nodes, not a mask by position, which is alike along diagonals."""
    if isinstance(graph, Graph):
        return graph.square and graph.nodes == nodes
    if not isinstance(graph, torch.Tensor) or graph.dim() < 2 or nodes < 4:
        return False
    if graph.dtype == torch.int64 and graph.dim() == 2 and graph.shape[0] == 2 and graph.shape[1]:
        return int(graph.min()) >= 0 and int(graph.max()) < nodes
    if graph.shape[-2:] != (nodes, nodes):
        return False
    return not torch.equal(graph[..., 1:, 1:], graph[..., :-1, :-1])


@rule()
def overlap(facts):
    rows = [row for batch in facts.evaluated for row in batch]
    if len(rows) < 16 or not facts.trained:
        return
    distinct = set(rows)
    once = sum(len(batch) for batch in {tuple(batch) for batch in facts.evaluated})
    if not facts.continuous and len(distinct) < 0.9 * once:
        return  # samples repeat by themselves
    both = distinct & facts.trained
    share = len(both) / len(distinct)
    if share < 0.01 or len(both) < 4:
        facts.measured["train-test-overlap"] = share
        return
    if len(both) > 0.9 * len(facts.trained):
        return  # the whole training set is evaluated, which is a training score
    facts.measured["train-test-overlap"] = share
    yield finding(
        "train-test-overlap",
        share,
        f"{len(both)} of {len(distinct)} evaluation samples were training samples, bit for bit",
        severity="warning" if share == 1 else "serious",
    )
