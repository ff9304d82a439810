"""Who hears whom: the future, other samples of the batch, the training set."""

from __future__ import annotations

import torch

from ...graphs import Graph
from .. import leaks
from ..findings import finding
from ..graph import first_tensor
from .common import first_batch, rule


@rule("normal")
def causal(facts):
    if not facts.shifted:
        return
    for batch in facts.batches:
        calls = facts.models.get(id(batch.model))
        if calls is None or calls.initial is None or len(batch.arguments) != 1 or batch.options:
            continue
        x = batch.arguments[0][:2]
        facts.measured["causal-leak"] = 0.0
        found = leaks.check_causal(calls.initial, x)
        if found is not None:
            facts.measured["causal-leak"] = found.measured or 0.0
            yield found
        return


@rule("normal")
def batches_apart(facts):
    chosen = first_batch(facts)
    if chosen is None or len(set(facts.fingerprints)) < 2:
        return  # one batch for all steps: the axis may be nodes, which do hear each other
    _, initial, batch = chosen
    if len(batch.arguments) != 1 or batch.options or not isinstance(batch.arguments[0], torch.Tensor):
        return
    x = batch.arguments[0]
    if x.dim() < 2 or len(x) < 2:
        return
    try:
        found = leaks.check_batch_independence(initial, x[:8] if x.dim() > 1 else x)
    except ValueError:
        return
    facts.measured["batch-leak"] = 0.0 if found is None else float(found.measured or 0.0)
    if found is None:
        return
    if x.dim() > 2 and x.shape[1] > 1:
        try:
            if leaks.check_batch_independence(initial, x[:, :4], axis=1) is None:
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
    yield found


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
