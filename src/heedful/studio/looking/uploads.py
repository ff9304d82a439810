"""Pictures that a page was given: read with care, kept small and few, in memory only."""

from __future__ import annotations

import secrets
import threading

from torch import Tensor
from torch.nn import functional as F

from ... import data

LARGEST = 4 * 1024 * 1024  # bytes of a file
PIXELS = 16_000_000  # that are decoded
SIDE = 512  # pixels on a side that are kept
KEPT = 16
FORMATS = ("PNG", "JPEG")  # what browsers show, and the fewest decoders


class Uploads:
    """Pictures by a name that nobody guesses; the oldest give way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pictures: dict[str, Tensor] = {}

    def take(self, content: bytes) -> str:
        """The name under which a picture is kept; ValueError where it is none."""
        try:
            found = data.picture(content, formats=FORMATS, most=PIXELS)
        except ValueError:
            raise
        except Exception as error:  # a decoder meets what it did not expect
            raise ValueError(f"the picture: cannot be read: {type(error).__name__}") from error
        longest = max(found.shape[-2:])
        if longest > SIDE:
            size = [max(1, round(side * SIDE / longest)) for side in found.shape[-2:]]
            found = (
                F.interpolate(found[None].float(), size, mode="bilinear", antialias=True)[0].round().byte()
            )
        name = f"sent-{secrets.token_hex(8)}"
        with self._lock:
            while len(self._pictures) >= KEPT:
                del self._pictures[next(iter(self._pictures))]
            self._pictures[name] = found
        return name

    def find(self, name: str) -> Tensor:
        with self._lock:
            found = self._pictures.get(name)
        if found is None:
            raise ValueError("The studio has that picture no more; choose it again.")
        return found
