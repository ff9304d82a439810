"""PyTorch Geometric's layers, by heedful: change one import, keep the weights.

    from heedful.interop.pyg import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

Arguments, `state_dict` keys and results are PyG's (2.8); PyG itself is not needed. `convert` replaces the
layers of a model that exists. See docs/pyg.md for what is supported and what is not.
"""

from .convert import convert
from .gat import GATConv
from .gatv2 import GATv2Conv
from .gcn import GCNConv
from .sage import SAGEConv
from .transformer import TransformerConv

__all__ = ["GATConv", "GATv2Conv", "GCNConv", "SAGEConv", "TransformerConv", "convert"]
