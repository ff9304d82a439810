"""Everything a training's next step depends on, as a nested state: out of it, and back into it.

Weights and optimizer of a training spread over processes are gathered whole, under the names they have alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def weights_of(model: nn.Module) -> dict[str, Any]:
    """All that a model holds: parameters, buffers (those that are not saved otherwise, too), extra state."""
    if _spread(model):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    model = bare(model)
    return {**model.state_dict(), **_unsaved(model)}


def load_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    if _spread(model):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        set_model_state_dict(model, dict(weights), options=StateDictOptions(full_state_dict=True))
        return
    model = bare(model)
    unsaved = _unsaved(model)
    try:
        model.load_state_dict({name: value for name, value in weights.items() if name not in unsaved})
    except RuntimeError as error:
        raise ValueError(f"its weights are not this model's: {error}") from None
    with torch.no_grad():
        for name, buffer in unsaved.items():
            buffer.copy_(weights[name])


def copy_of(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Weights that stay as they are while training goes on."""
    return {k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in weights.items()}


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    if _spread(model):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_optimizer_state_dict(model, optimizer, options=options)
    return optimizer.state_dict()


def load_optimizer(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    if _spread(model):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))
        return
    optimizer.load_state_dict(state)


def bare(model: nn.Module) -> nn.Module:
    """Without the wrapper that spreads it, so that names do not depend on how a model is trained."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _spread(model: nn.Module) -> bool:
    return hasattr(model, "set_requires_gradient_sync")  # what fully_shard adds


def _unsaved(model: nn.Module) -> dict[str, Tensor]:
    saved = model.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}
