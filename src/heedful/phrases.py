"""Similarities and neighbours as a line of text: `polynomial(degree=3)`, `causal & window(256) | global(0)`.

    any  = all { "|" all }
    all  = one { "&" one }
    one  = "(" any ")" | name [ "(" [ argument { "," argument } ] ")" ]
    argument = [ name "=" ] ( number | "[" number { "," number } "]" )

As in Python, & binds tighter than |. Nothing is evaluated: names come from a list, arguments are numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<mark>.))"
)


class PhraseError(ValueError):
    """A phrase that cannot be read, with a mark under the place where reading stopped."""

    def __init__(self, what: str, text: str, start: int, length: int, known: Iterable[str] = ()):
        lines = [what, f"  {text}", f"  {' ' * start}{'^' * max(1, length)}"]
        if known:
            lines.append(f"known: {', '.join(known)}")
        super().__init__("\n".join(lines))


class Token(NamedTuple):
    kind: str  # name, number, mark or end
    text: str
    start: int


@dataclass(frozen=True)
class Word:
    """A name a phrase may use: how to build what it stands for, and what it looks like with its arguments."""

    build: Callable
    example: str


def suggestion(given: str, known: Iterable[str]) -> str:
    """ "; did you mean 'window'?" where something known is close to what was given, else nothing."""
    close = difflib.get_close_matches(given.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def parse_neighbors(text: str, *, width: int | None = None):
    """The pattern a phrase describes. `width` is what `window` without an argument means.

    >>> parse_neighbors("causal & window(256)")
    Causal() & Window(256)
    >>> parse_neighbors("window | global(0, 1)", width=64)
    Window(64) | Global([0, 1])
    """
    from heedful.attention import Causal, Everyone, Global, Segments, Window

    def window(width: int | None = width):
        if width is None:
            raise TypeError("window() needs a width")
        return Window(width)

    words = {
        "causal": Word(lambda: Causal(), "causal"),
        "everyone": Word(lambda: Everyone(), "everyone"),
        "global": Word(lambda *indices: Global(_flat(indices)), "global(0, 1)"),
        "segments": Word(lambda *lengths: Segments(_flat(lengths)), "segments(512, 512)"),
        "window": Word(window, "window(256)"),
    }
    return _Reader(text, words, "neighbors").read(combine=True)


def parse_similarity(text: str, *, degree: int | None = None):
    """The similarity a phrase describes. `degree` is what `polynomial` without an argument means.

    >>> parse_similarity("polynomial(degree=3, constant=0.5)")
    Polynomial(degree=3, constant=0.5)
    >>> parse_similarity("softmax"), parse_similarity("random(64)")
    (Softmax(), RandomFeatures(64))
    """
    from heedful.attention import Additive, Argmax, EluKernel, Polynomial, RandomFeatures, Softmax, Uniform

    def polynomial(degree: int = 2 if degree is None else degree, constant: float = 1.0):
        return Polynomial(degree, constant)

    words = {
        "additive": Word(lambda slope=0.2: Additive(slope), "additive(0.2)"),
        "argmax": Word(lambda: Argmax(), "argmax"),
        "elu": Word(lambda: EluKernel(), "elu"),
        "polynomial": Word(polynomial, "polynomial(degree=2, constant=1)"),
        "elukernel": Word(lambda: EluKernel(), "elu"),
        "randomfeatures": Word(lambda features=256: RandomFeatures(features), "random(256)"),
        "random": Word(lambda features=256: RandomFeatures(features), "random(256)"),
        "softmax": Word(lambda scale=None: Softmax(scale), "softmax"),
        "uniform": Word(lambda: Uniform(), "uniform"),
    }
    return _Reader(text, words, "similarity").read(combine=False)


def as_similarity(given):
    """A similarity, itself or described: what it prints reads back.

    >>> as_similarity("polynomial(degree=3)"), as_similarity("EluKernel()")
    (Polynomial(degree=3), EluKernel())
    """
    return parse_similarity(given) if isinstance(given, str) else given


def as_neighbors(given):
    """Neighbors, themselves or described.

    >>> as_neighbors("Causal() & Window(256)")
    Causal() & Window(256)
    """
    return parse_neighbors(given) if isinstance(given, str) else given


def _flat(arguments: tuple) -> list[int]:
    return [number for entry in arguments for number in (entry if isinstance(entry, list) else [entry])]


class _Reader:
    """Recursive descent, one token of foresight."""

    def __init__(self, text: str, words: dict[str, Word], what: str):
        self.text, self.words, self.what = text, words, what
        self.tokens = []
        for found in _TOKEN.finditer(text):
            kind = found.lastgroup or "mark"
            self.tokens.append(Token(kind, found[kind], found.start(kind)))
        if self.tokens and not self.tokens[-1].text.strip():
            self.tokens.pop()
        self.tokens.append(Token("end", "", len(text.rstrip())))
        self.place = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self) -> Token:
        token = self.next
        self.place += 1
        return token

    def taken(self, text: str) -> bool:
        if self.next.text != text:
            return False
        self.place += 1
        return True

    def fail(self, what: str, token: Token | None = None, *, known: bool = False):
        token = token or self.next
        examples = dict.fromkeys(word.example for word in self.words.values()) if known else ()
        raise PhraseError(f"{self.what}: {what}", self.text, token.start, len(token.text), examples)

    def read(self, combine: bool):
        found = self.any() if combine else self.named()
        if self.next.kind != "end":
            expected = "&, | or the end" if combine else "the end"
            self.fail(f"expected {expected}, got {self.next.text!r}")
        return found

    def any(self):
        found = self.all()
        while self.taken("|"):
            found = found | self.all()
        return found

    def all(self):
        found = self.one()
        while self.taken("&"):
            found = found & self.one()
        return found

    def one(self):
        if self.taken("("):
            found = self.any()
            self.close(")")
            return found
        return self.named()

    def named(self):
        token = self.take()
        if token.kind != "name":
            got = repr(token.text) if token.text else "nothing"
            self.fail(f"expected a name, got {got}", token, known=True)
        word = self.words.get(token.text.lower())
        if word is None:
            near = suggestion(token.text, self.words)
            self.fail(f"unknown name {token.text!r}{near}", token, known=True)
        places, names = self.arguments() if self.taken("(") else ([], {})
        try:
            return word.build(*places, **names)
        except TypeError as error:
            wrong = re.sub(r"^.*?\(\) ", f"{token.text} ", str(error))
            self.fail(f"{wrong} (as in {word.example})", token)
        except ValueError as error:
            self.fail(str(error).rstrip("."), token)

    def arguments(self) -> tuple[list, dict]:
        places: list = []
        names: dict = {}
        while not self.taken(")"):
            if places or names:
                self.close(",", " or )")
            if self.next.kind == "name":
                name = self.take()
                self.close("=")
                if name.text in names:
                    self.fail(f"{name.text} is given twice", name)
                names[name.text] = self.number_or_list()
            else:
                places.append(self.number_or_list())
        return places, names

    def number_or_list(self):
        if not self.taken("["):
            return self.number()
        numbers = [self.number()]
        while self.taken(","):
            numbers.append(self.number())
        self.close("]")
        return numbers

    def number(self) -> int | float:
        token = self.take()
        if token.kind != "number":
            got = repr(token.text) if token.text else "the end"
            self.fail(f"expected a number, got {got}", token)
        return int(token.text) if re.fullmatch(r"[-+]?\d+", token.text) else float(token.text)

    def close(self, mark: str, otherwise: str = "") -> None:
        if not self.taken(mark):
            got = repr(self.next.text) if self.next.text else "the end"
            self.fail(f"expected {mark}{otherwise}, got {got}")
