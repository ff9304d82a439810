"""Random layers, random graphs, and PyG's answer to both."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("torch_geometric")

import torch_geometric.nn

import heedful.interop.pyg

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LAYERS = ("GATConv", "GATv2Conv", "GCNConv", "SAGEConv", "TransformerConv")


def pair(name: str, *args, dtype=torch.float64, **options):
    """PyG's layer and ours, with the same random weights; ours got them through its state_dict, strictly."""
    theirs = getattr(torch_geometric.nn, name)(*args, **options).to(dtype)
    ours = getattr(heedful.interop.pyg, name)(*args, **options).to(dtype)
    for parameter in theirs.parameters():
        if not torch.nn.parameter.is_lazy(parameter):
            torch.nn.init.normal_(parameter, std=0.5)  # biases too, which PyG starts at 0
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def random_edges(sources: int, targets: int, edges: int) -> torch.Tensor:
    """Any edges: repeated ones, loops, nodes without any."""
    return torch.stack([torch.randint(max(n, 1), (edges,)) for n in (sources, targets)])


def leaves(*tensors):
    """Copies that want gradients, for what is there."""
    return [None if t is None else t.clone().requires_grad_() for t in tensors]


def flat(inputs):
    for one in inputs:
        yield from one if isinstance(one, (tuple, list)) else [one]


def assert_same(ours, theirs, *inputs, tolerance=None, **options):
    """Same outputs, same gradients of everything: parameters, features, edge features, weights."""
    results = []
    for layer in (ours, theirs):
        given = [
            tuple(leaves(*one)) if isinstance(one, tuple)
            else one.clone().requires_grad_() if isinstance(one, torch.Tensor) and one.is_floating_point()
            else one
            for one in inputs
        ]  # fmt: skip
        out = layer(*given, **options)
        weights = ()
        if isinstance(out, tuple):
            out, weights = out
        torch.manual_seed(1)  # the same for both
        terms = out * torch.randn(out.shape, dtype=out.dtype)
        loss = terms.sum()
        if weights:
            loss = loss + (weights[1] * torch.randn(weights[1].shape, dtype=out.dtype)).sum()
        wanted = {f"input {n}": t for n, t in enumerate(flat(given)) if t is not None and t.requires_grad}
        heard = {name: t.detach() for name, t in wanted.items() if t.dim() == 1}  # weights of edges
        wanted |= dict(layer.named_parameters())
        found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        results.append((out, weights, dict(zip(wanted, found, strict=True))))
    (out, weights, grads), (their_out, their_weights, their_grads) = results
    tolerance = tolerance or TOLERANCE[out.dtype]
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(out, their_out, **close)
    assert len(weights) == len(their_weights)
    if weights:
        assert torch.equal(weights[0], their_weights[0].to(weights[0].dtype))
        torch.testing.assert_close(weights[1], their_weights[1], **close)
    assert grads.keys() == their_grads.keys()
    for name, grad in grads.items():
        theirs_is = their_grads[name]
        if theirs_is is None or grad is None:  # not part of the sum, or there are no edges it could reach
            other = grad if theirs_is is None else theirs_is
            assert other is None or not other.any(), name
            continue
        scale = max(1.0, float(theirs_is.abs().max()) if theirs_is.numel() else 1.0)
        if name in heard and grad.numel():
            # An edge's weight is in its listener's degree, too, and its gradient a difference of the two: off
            # by the roundings of what is subtracted, which may leave nothing (a node that hears itself only).
            scale = max(scale, float(terms.detach().abs().sum() / heard[name].min()))
        torch.testing.assert_close(
            grad / scale, theirs_is / scale, **close, msg=lambda m, name=name: f"{name}: {m}"
        )


class Draw(random.Random):
    """Random options and inputs for a layer."""

    def flag(self) -> bool:
        return self.random() < 0.5

    def layer(self, name: str):
        """(arguments, options, inputs, options of the call)"""
        return getattr(self, name)()

    def _graph(self, bipartite: bool):
        sources = self.choice([1, 2, 7, 12])
        targets = self.choice([1, 3, 8, 12]) if bipartite else sources
        return sources, targets, random_edges(sources, targets, self.choice([0, 1, 5, 40]))

    def _attention(self, loops: bool):
        bipartite = self.flag()
        sources, targets, edges = self._graph(bipartite)
        width, width_target = self.choice([1, 3, 6]), self.choice([1, 4])
        options = {
            "heads": self.choice([1, 2, 3]),
            "concat": self.flag(),
            "bias": self.flag(),
            "edge_dim": self.choice([None, 1, 4]),
        }
        if loops:
            options |= {
                "negative_slope": self.choice([0.0, 0.2, 1.0]),
                "add_self_loops": self.flag(),
                "fill_value": self.choice(["mean", "add", "min", "max", "mul", "sum", 0.5, "tensor"]),
                "residual": self.flag(),
            }
            if options["fill_value"] == "tensor":
                options["fill_value"] = torch.randn(options["edge_dim"] or 1)
            if (
                bipartite
                and options["edge_dim"]
                and isinstance(options["fill_value"], str)
                and targets > sources
            ):
                options["fill_value"] = 1.5  # PyG reads past the end here
        x = torch.randn(sources, width, dtype=torch.float64)
        if bipartite:
            x = (x, torch.randn(targets, width_target, dtype=torch.float64))
        edge_attr = None
        if options["edge_dim"]:
            edge_attr = torch.randn(edges.shape[1], options["edge_dim"], dtype=torch.float64)
        args = ((width, width_target) if bipartite else width, self.choice([1, 2, 5]))
        call = {"return_attention_weights": True} if self.flag() else {}
        return args, options, [x, edges, edge_attr], call

    def GATConv(self):
        args, options, inputs, call = self._attention(loops=True)
        if self.flag():
            inputs[2] = None
        return args, options, inputs, call

    def GATv2Conv(self):
        args, options, inputs, call = self._attention(loops=True)
        if self.flag() and not isinstance(args[0], tuple):
            options["share_weights"] = True
        return args, options, inputs, call

    def TransformerConv(self):
        args, options, inputs, call = self._attention(loops=False)
        return args, options | {"beta": self.flag(), "root_weight": self.flag()}, inputs, call

    def GCNConv(self):
        nodes, _, edges = self._graph(False)
        normalize = self.flag()
        options = {
            "normalize": normalize,
            "improved": self.flag(),
            "bias": self.flag(),
            "cached": self.flag(),
        }
        if normalize:
            options["add_self_loops"] = self.choice([None, True, False])
        width = self.choice([1, 3, 8])
        lead = self.choice([(), (), (2,), (2, 3)])
        x = torch.randn(*lead, nodes, width, dtype=torch.float64)
        # Weights above 0: PyG's gradient at a degree of 0 is NaN. A node's loops are not repeated: PyG keeps
        # the last, but sends a gradient to all.
        edges = edges[:, first_loops(edges)]
        weight = torch.rand(edges.shape[1], dtype=torch.float64) + 0.1 if self.flag() else None
        if weight is not None and normalize and options["add_self_loops"] is False:
            edges = torch.cat([edges, torch.arange(nodes).expand(2, -1)], 1)
            weight = torch.cat([weight, torch.ones(nodes, dtype=torch.float64)])
        return (width, self.choice([1, 2, 9])), options, [x, edges, weight], {}

    def SAGEConv(self):
        bipartite = self.flag()
        sources, targets, edges = self._graph(bipartite)
        width, width_target = self.choice([1, 3, 8]), self.choice([1, 4])
        kinds = ["mean", "sum", "add", "max", "min", "var"]
        options = {
            "aggr": self.choice([*kinds, ["mean", "max"], ["var", "sum", "min"]]),
            "normalize": self.flag(),
            "root_weight": self.flag(),
            "project": self.flag(),
            "bias": self.flag(),
        }
        if "var" in options["aggr"]:
            options["normalize"] = (
                False  # PyG's variance of equal numbers is rounding, which would be blown up
            )
        lead = self.choice([(), (), (2,)])
        x = torch.randn(*lead, sources, width, dtype=torch.float64)
        if bipartite:
            x = (x, torch.randn(*lead, targets, width_target, dtype=torch.float64))
        call = {"size": (sources, targets)} if self.flag() else {}
        return (
            ((width, width_target) if bipartite else width, self.choice([1, 2, 9])),
            options,
            [x, edges],
            call,
        )


def first_loops(edges: torch.Tensor) -> torch.Tensor:
    """Which edges to keep so that no node has two loops."""
    seen: set[int] = set()
    keep = []
    for source, target in edges.T.tolist():
        keep.append(source != target or source not in seen)
        if source == target:
            seen.add(source)
    return torch.tensor(keep, dtype=torch.bool)
