"""Who listens to whom, under a similarity and neighbors of one's choice, and how that is computed.

With a trained model, its queries and keys: a GPT reads text, a ViT sees a picture, a GAT has the graph it was
trained on. Without one, things that are alike listen to each other: words spelled alike, patches that look
alike, nodes with neighbors in common. A window is what lies near: in tokens, patches or steps.
"""

from __future__ import annotations

from ...lab import Kept
from . import graphs, pictures, texts
from .seen import Seen
from .uploads import Uploads
from .view import KINDS, NEIGHBORS, PLAIN, SIMILARITIES, View

__all__ = ["KINDS", "NEIGHBORS", "PLAIN", "SIMILARITIES", "Seen", "Uploads", "View", "look"]


def look(view: View, found: Kept | None, uploads: Uploads | None = None) -> Seen:
    """What there is to see, pruned to as much as a page can show."""
    if view.kind == "text":
        return texts.look(view, found).pruned(view.most)
    if view.kind == "picture":
        return pictures.look(view, found, uploads or Uploads())
    return graphs.look(view, found)
