"""Questions to any `nn.Module`: what it knows, what it sees, how its gradients flow."""

from __future__ import annotations

from .attention import attention_distance, attention_rollout
from .copying import Copy, copied
from .energy import dirichlet_energy
from .gradients import gradient_norms, jacobian_spectrum, state_gradient_norms
from .invariance import accuracy, rotate, rotation_curve, shift, shift_map
from .linear import linear_probe
from .receptive import receptive_field
from .segmentation import dice, iou, pixel_error, rand_error, segments

__all__ = [
    "Copy",
    "accuracy",
    "attention_distance",
    "attention_rollout",
    "copied",
    "dice",
    "dirichlet_energy",
    "gradient_norms",
    "iou",
    "jacobian_spectrum",
    "linear_probe",
    "pixel_error",
    "rand_error",
    "receptive_field",
    "rotate",
    "rotation_curve",
    "segments",
    "shift",
    "shift_map",
    "state_gradient_norms",
]
