"""What learns in a layer's similarity or position is the layer's own: trained, moved and saved with it."""

from __future__ import annotations

from torch import nn

from ..attention import FeatureMap, ScoreFunction, Softmax
from ..attention.position import Position
from ..attention.similarity import Similarity


class Similar(nn.Module):
    """A layer with a similarity. A parameter that is Softmax's scale becomes the layer's, `scale`, and a
    module in FeatureMap or ScoreFunction a part of it, `phi` or `fn`. Other parameters are refused.
    """

    scale: nn.Parameter | None

    def _take(self, where: str, similarity: Similarity) -> None:
        if not isinstance(similarity, Similarity):
            raise TypeError(
                f"{where}: similarity must be a Similarity such as Softmax(), or its name; "
                f"got {similarity!r}."
            )
        parts = {"scale": Softmax, "phi": FeatureMap, "fn": ScoreFunction}
        for name in _learning(similarity):
            if not isinstance(similarity, parts.get(name, ())):
                raise TypeError(
                    f"{where}: {similarity} holds a parameter, {name}, that the layer would not train, move "
                    f"or save. Only Softmax's scale may be one, FeatureMap or ScoreFunction hold a module."
                )
        scale = getattr(similarity, "scale", None)
        self.register_parameter("scale", scale if isinstance(scale, nn.Parameter) else None)
        self._similarity = similarity
        for name in ("phi", "fn"):
            part = getattr(similarity, name, None)
            if isinstance(part, nn.Module):
                setattr(self, name, part)

    @property
    def similarity(self) -> Similarity:
        return self._similarity if self.scale is None else Softmax(self.scale)


def check_position(where: str, position: Position | None) -> None:
    """A position, whose parameters are a module's: those of the operator's own have no owner."""
    if position is not None and not isinstance(position, Position):
        raise TypeError(
            f"{where}: position must be a Position such as Rotary() or RelativePosition(heads, reach), "
            f"got {position!r}. LearnedPositions and SinusoidalPositions are added to the tokens before."
        )
    if position is not None and not isinstance(position, nn.Module) and (names := _learning(position)):
        raise TypeError(
            f"{where}: {position} holds a parameter, {names[0]}, that the layer would not train, move or "
            f"save. RelativePosition, T5Position and AlibiPosition of heedful.nn learn; others take tensors."
        )


def _learning(thing: Similarity | Position) -> list[str]:
    """The names of parts that are parameters, or modules that have some."""
    return [name for name, part in vars(thing).items() if _learns(part)]


def _learns(part: object) -> bool:
    if isinstance(part, nn.Module):
        return next(part.parameters(), None) is not None
    return isinstance(part, nn.Parameter)
