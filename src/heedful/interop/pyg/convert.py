"""Replace the PyG layers of a model by heedful's, weights kept."""

from __future__ import annotations

import inspect
import warnings
from typing import cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .gat import GATConv
from .gatv2 import GATv2Conv
from .gcn import GCNConv
from .layer import Layer
from .sage import SAGEConv
from .transformer import TransformerConv

LAYERS: dict[str, type[Layer]] = {
    layer.__name__: layer for layer in (GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv)
}
BIASES = ("bias", "lin_l.bias", "lin_key.bias")  # one of them is there if a layer was made with bias=True


def convert(model: nn.Module) -> nn.Module:
    """Replace, in place, the PyG layers within `model` that heedful has, and return it.

    Parameters are taken over, not copied: an optimizer that holds them goes on as before. Layers that cannot
    be replaced stay as they are, and a warning lists them and says why. If the model is itself such a layer,
    use what is returned.

    >>> from torch_geometric.nn import GAT
    >>> model = convert(GAT(16, 8, num_layers=2, heads=2))
    >>> isinstance(model.convs[0], GATConv)
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert(): model must be a torch module, got {type(model).__name__}.")
    new: dict[nn.Module, nn.Module] = {}
    left: list[str] = []
    for name, module in model.named_modules():
        if _is_message_passing(module):
            try:
                new[module] = _converted(module)
            except NotImplementedError as reason:
                left.append(f"  {name or 'the model itself'}, {type(module).__name__}: {reason}")
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in new:
                parent._modules[name] = new[child]
    if left:
        warnings.warn("convert(): these layers stay as they are.\n" + "\n".join(left), stacklevel=2)
    return new.get(model, model)


def _is_message_passing(module: nn.Module) -> bool:
    return any(
        kind.__name__ == "MessagePassing" and kind.__module__.startswith("torch_geometric.")
        for kind in type(module).__mro__
    )


def _converted(old: nn.Module) -> nn.Module:
    """heedful's layer with the options and parameters of PyG's, or NotImplementedError with the reason."""
    kind = type(old)
    if kind.__name__ not in LAYERS or not kind.__module__.startswith("torch_geometric."):
        raise NotImplementedError("heedful has no such layer.")
    hooks = [name for name, found in vars(old).items() if name.endswith("_hooks") and found]
    if hooks:
        raise NotImplementedError(f"it has hooks ({', '.join(hooks)}), which would be lost.")
    if any(getattr(part, "semi_grad", False) for part in cast(nn.Module, old.aggr_module).modules()):
        raise NotImplementedError("its aggregation has semi_grad=True.")
    with torch.device("meta"):  # draws no random numbers
        new = LAYERS[kind.__name__](**_options(old))
    _take_over(new, old)
    return new.train(old.training)


def _options(old: nn.Module) -> dict:
    """What the layer was made with, read off its attributes."""
    named = inspect.signature(LAYERS[type(old).__name__]).parameters
    options = {name: getattr(old, name) for name in named if name != "bias" and hasattr(old, name)}
    parameters = dict(old.named_parameters())
    options["bias"] = any(name in parameters for name in BIASES)
    options["aggr"] = _plain_name(old.aggr)
    return {**options, "flow": old.flow, "decomposed_layers": old.decomposed_layers}


def _plain_name(aggr):
    """'MeanAggregation()', which is how PyG remembers an object, is 'mean'."""
    if isinstance(aggr, list):
        return [_plain_name(one) for one in aggr]
    return aggr.removesuffix("Aggregation()").lower() if isinstance(aggr, str) else aggr


def _take_over(new: nn.Module, old: nn.Module) -> None:
    ours, theirs = new.state_dict(keep_vars=True), old.state_dict(keep_vars=True)
    if ours.keys() != theirs.keys():
        odd = ", ".join(sorted(ours.keys() ^ theirs.keys()))
        raise NotImplementedError(f"its parameters are not those of such a layer ({odd}).")
    for name, parameter in theirs.items():
        if not is_lazy(parameter) and not is_lazy(ours[name]) and parameter.shape != ours[name].shape:
            shapes = f"{tuple(parameter.shape)}, not {tuple(ours[name].shape)}"
            raise NotImplementedError(f"its parameters are not those of such a layer ({name} is {shapes}).")
        owner, _, leaf = name.rpartition(".")
        setattr(new.get_submodule(owner), leaf, parameter)
