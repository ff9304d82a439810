"""Models: one file an architecture, short enough to read in one sitting, complete enough to train."""

from __future__ import annotations

from .model import Model, load

__all__ = ["Model", "load"]
