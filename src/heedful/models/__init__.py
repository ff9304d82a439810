"""Models: one file an architecture, short enough to read in one sitting, complete enough to train."""

from __future__ import annotations

from .convnet import ConvNet
from .gpt import GPT
from .model import Model, load
from .resnet import PlainNet, ResNet
from .rnn import RNN

__all__ = [
    "GPT",
    "RNN",
    "ConvNet",
    "Model",
    "PlainNet",
    "ResNet",
    "load",
]
