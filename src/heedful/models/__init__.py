"""Models: one file an architecture, short enough to read in one sitting, complete enough to train."""

from __future__ import annotations

from .autoencoder import Autoencoder
from .convnet import ConvNet
from .exporting import GPTStep
from .gat import GAT
from .gcn import GCN
from .gpt import GPT
from .graph_exporting import OverEdges, portable
from .graph_transformer import GraphTransformer
from .masked_autoencoder import MaskedAutoencoder
from .model import Model, load, notes
from .mpnn import MPNN
from .resnet import PlainNet, ResNet
from .rnn import RNN
from .unet import UNet
from .vit import ViT

__all__ = [
    "GAT",
    "GCN",
    "GPT",
    "MPNN",
    "RNN",
    "Autoencoder",
    "ConvNet",
    "GPTStep",
    "GraphTransformer",
    "MaskedAutoencoder",
    "Model",
    "OverEdges",
    "PlainNet",
    "ResNet",
    "UNet",
    "ViT",
    "load",
    "notes",
    "portable",
]
