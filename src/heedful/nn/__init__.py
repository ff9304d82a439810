"""Layers, a few lines each over `attend`: the docstring opens with the formula, `forward` reads like it."""

from __future__ import annotations

__all__: list[str] = []
