"""Text as numbers and back: every character a token, or pieces that byte-pair encoding found frequent.

Both ways have `size`, `encode(text)`, `decode(codes)` and `notes()`: what to keep beside a model trained on
them, from which `tokens_of` makes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Characters:
    """Every character a token, numbered by its place in `symbols`.

    >>> letters = Characters("abc")
    >>> letters.encode("cab"), letters.decode([2, 0, 1])
    (tensor([2, 0, 1]), 'cab')
    """

    symbols: tuple[str, ...]
    name: str = "the vocabulary"

    def __init__(self, symbols: Iterable[str], name: str = "the vocabulary"):
        object.__setattr__(self, "symbols", tuple(symbols))
        object.__setattr__(self, "name", name)

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str, *, unknown: str = "error") -> Tensor:
        """The numbers of a text's characters, int64. Those that have none: "error" or "skip"."""
        _check_unknown(unknown)
        if not text:
            return torch.empty(0, dtype=torch.int64)
        points, order = self._points
        given = torch.frombuffer(bytearray(text.encode("utf-32-le", "surrogatepass")), dtype=torch.int32)
        found = torch.searchsorted(points, given.long()).clamp(max=len(points) - 1)
        code, known = order[found], points[found] == given
        if known.all():
            return code
        if unknown == "error":
            strange = sorted({symbol for symbol, here in zip(text, known.tolist(), strict=True) if not here})
            shown = " ".join(map(repr, strange[:20])) + (" …" if len(strange) > 20 else "")
            count = "1 symbol is" if len(strange) == 1 else f"{len(strange)} symbols are"
            raise ValueError(
                f"encode(): {count} not among the {len(points)} of {self.name}: {shown}. "
                "Leave them out, or use unknown='skip'."
            )
        return code[known]

    def decode(self, codes) -> str:
        """The text the numbers stand for."""
        return "".join(self.symbols[code] for code in torch.as_tensor(codes).flatten().tolist())

    def notes(self) -> dict[str, Any]:
        return {"symbols": list(self.symbols)}

    @cached_property
    def _points(self) -> tuple[Tensor, Tensor]:
        return torch.tensor([ord(symbol) for symbol in self.symbols]).sort()


class Pieces:
    """Byte-level byte-pair encoding: pieces of words that are frequent in a text; any text can be encoded.

    `Pieces.learned(text, size)` finds them. Needs tokenizers: pip install 'heedful[text]'.

    >>> pieces = Pieces.learned("the thin thing thinks " * 50, size=270)
    >>> pieces.decode(pieces.encode("the thief, naïve"))
    'the thief, naïve'
    >>> len(pieces.encode("the thing")) < len("the thing")
    True
    """

    def __init__(self, described: Mapping[str, Any]):
        self._described = dict(described)
        self._tokenizer = _tokenizers().Tokenizer.from_str(json.dumps(self._described))

    @classmethod
    def learned(cls, text: str, size: int) -> Pieces:
        """The most useful pieces of a text, at most `size`, the 256 bytes among them."""
        if size < 257:
            raise ValueError(f"Pieces.learned(size={size}): takes 257 or more, for the 256 bytes and a pair.")
        package = _tokenizers()
        tokenizer = package.Tokenizer(package.models.BPE())
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator([text], trainer)
        return cls(json.loads(tokenizer.to_str()))

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str, *, unknown: str = "error") -> Tensor:
        """The numbers of a text's pieces, int64. Nothing is unknown: new words are spelt in bytes."""
        _check_unknown(unknown)
        return torch.tensor(self._tokenizer.encode(text).ids, dtype=torch.int64)

    def decode(self, codes) -> str:
        """The text the numbers stand for; bytes that are no character show as �."""
        return self._tokenizer.decode(torch.as_tensor(codes).flatten().tolist())

    def notes(self) -> dict[str, Any]:
        return {"pieces": self._described}


def tokens_of(notes: Mapping[str, Any]) -> Characters | Pieces:
    """The tokens a kept model was trained on, from its notes.

    >>> tokens_of({"symbols": ["a", "b"]}).decode([1, 0])
    'ba'
    """
    if "pieces" in notes:
        return Pieces(notes["pieces"])
    if "symbols" in notes:
        return Characters(notes["symbols"], f"this model of {notes.get('text', 'a text')}")
    raise ValueError("tokens_of(): the notes name neither symbols nor pieces; what were the tokens?")


def _check_unknown(unknown: str) -> None:
    if unknown not in ("error", "skip"):
        raise ValueError(f"encode(): unknown={unknown!r} must be 'error' or 'skip'")


def _tokenizers():
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "Byte-pair encoding needs tokenizers: pip install 'heedful[text]'. Characters need nothing."
        ) from None
    return tokenizers
