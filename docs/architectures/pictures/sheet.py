"""Paper, ink and a few shapes, written down as SVG text: small, the same every time, sharp at any size."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

PAPER, INK, SOFT, PALE = "#fcfbf8", "#2e3440", "#9aa0aa", "#e9e7e1"
TONES = {  # fill, line
    "blue": ("#dbe7f3", "#4f7cac"),
    "orange": ("#fbe6d2", "#d2803a"),
    "green": ("#dcefe3", "#4c9a6a"),
    "violet": ("#e6e1f3", "#7a66b0"),
    "grey": ("#efede8", "#a9a59c"),
    "paper": (PAPER, SOFT),
}
SANS, SERIF = "Helvetica, Arial, sans-serif", "'Times New Roman', serif"
Point = tuple[float, float]


def fill(tone: str) -> str:
    return TONES[tone][0] if tone in TONES else tone


def line(tone: str) -> str:
    return TONES[tone][1] if tone in TONES else tone


def mix(one: str, other: str, share: float) -> str:
    """A colour between two: all of one at 0, all of the other at 1."""
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def towards(start: Point, end: Point, distance: float) -> Point:
    share = distance / (math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


class Sheet:
    """Paper to draw on; coordinates in pixels from the top left, things placed by their centre."""

    def __init__(self, width: int, height: int, about: str):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="{SANS}">',
            f"<title>{about}</title>",
            f'<rect width="{width}" height="{height}" rx="12" fill="{PAPER}"/>',
        ]

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>\n"])

    def add(self, tag: str, content: str | None = None, **attributes) -> None:
        """An element; what is None or False is left out."""
        shown = "".join(
            f' {name.replace("_", "-")}="{_number(value)}"'
            for name, value in attributes.items()
            if value is not None and value is not False
        )
        self.parts.append(f"<{tag}{shown}/>" if content is None else f"<{tag}{shown}>{content}</{tag}>")

    def text(self, x, y, words: str, *, size=13, tone=INK, anchor="middle", math=False) -> None:
        """Words around height y. In mathematics x_i and x_{ij} have subscripts, x^h superscripts."""
        style = {"font_family": SERIF, "font_style": "italic"} if math else {}
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        height, size = y + 0.35 * size, size + 3 * math
        content = _formula(words) if math else words
        self.add("text", content, x=x, y=height, font_size=size, fill=line(tone), text_anchor=anchor, **style)

    def note(self, x, y, words: str, *, size=12, **style) -> None:
        self.text(x, y, words, size=size, tone=SOFT, **style)

    def box(
        self, x, y, width, height, words="", tone="blue", *, size=13, math=False, dash=False, clear=False
    ):
        colour, dashes = "none" if clear else fill(tone), "4 3" if dash else None
        corner = {
            "x": x - width / 2,
            "y": y - height / 2,
            "width": width,
            "height": height,
            "rx": 5 if min(width, height) > 20 else 2,
        }
        self.add("rect", **corner, fill=colour, stroke=line(tone), stroke_width=1.5, stroke_dasharray=dashes)
        lines = words.split("\n")
        for n, words_of_line in enumerate(lines):
            self.text(x, y + (n - (len(lines) - 1) / 2) * (size + 4), words_of_line, size=size, math=math)

    def bar(self, x, base, width, height, tone: str) -> None:
        """Of a chart: it stands on `base`."""
        self.box(x, base - height / 2, width, height, tone=tone)

    def cell(self, x, y, side, colour: str, words="", *, tone=PAPER, width=1.0, ink=INK, math=False) -> None:
        """A square by its top left corner."""
        self.add("rect", x=x, y=y, width=side, height=side, fill=colour, stroke=tone, stroke_width=width)
        if words:
            self.text(x + side / 2, y + side / 2, words, tone=ink, math=math, size=12 if math else 13)

    def matrix(self, x, y, side, rows: Sequence[Sequence[str]], *, lines=True) -> None:
        """Squares side by side, one path a colour, with lines between them or without."""
        found: dict[str, str] = {}
        for i, row in enumerate(rows):
            for j, colour in enumerate(row):
                corner = f"{_number(float(x + j * side))} {_number(float(y + i * side))}"
                found[colour] = found.get(colour, "") + f"M{corner}h{side:g}v{side:g}h-{side:g}z"
        for colour, d in found.items():
            self.add(
                "path", d=d, fill=colour, stroke=PAPER if lines else colour, stroke_width=1 if lines else 0.5
            )

    def dot(self, x, y, r=14, words="", tone="blue", *, colour: str | None = None, size=13) -> None:
        self.add("circle", cx=x, cy=y, r=r, fill=colour or fill(tone), stroke=line(tone), stroke_width=1.6)
        if words:
            self.text(x, y, words, size=size, math=True)

    def plus(self, x, y) -> None:
        self.dot(x, y, 10, tone="paper")
        self.line((x - 6, y), (x + 6, y), tone=INK)
        self.line((x, y - 6), (x, y + 6), tone=INK)

    def shape(self, points: Sequence[Point], colour: str, tone=PAPER, width=0.8) -> None:
        self.add("polygon", points=_points(points), fill=colour, stroke=line(tone), stroke_width=width)

    def line(self, *points: Point, **style) -> None:
        self.path("M" + " L".join(f"{_number(x)} {_number(y)}" for x, y in points), **style)

    def path(self, d: str, *, tone=SOFT, width=1.5, dash=False) -> None:
        dashes = "4 3" if dash else None
        self.add("path", d=d, fill="none", stroke=line(tone), stroke_width=width, stroke_dasharray=dashes)

    def arrow(self, *points: Point, gap: Point = (0, 0), tone=SOFT, head=7, **style) -> None:
        """A line that ends in a head; `gap` is left free at its two ends, for the nodes it joins."""
        start, tip = towards(points[0], points[1], gap[0]), towards(points[-1], points[-2], gap[1])
        before = points[-2]
        self.line(start, *points[1:-1], towards(tip, before, head * 0.8), tone=tone, **style)
        self.head(tip, math.atan2(tip[1] - before[1], tip[0] - before[0]), tone, head)

    def bow(self, start: Point, end: Point, rise: float, *, tone=SOFT, **style) -> None:
        """An arrow that bends upwards by `rise` on its way."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 2 * rise)
        (a, b), (c, d), (e, f) = start, middle, towards(end, middle, 5.6)
        self.path(f"M{a:g} {b:g} Q{c:g} {d:g} {e:.2f} {f:.2f}", tone=tone, **style)
        self.head(end, math.atan2(end[1] - middle[1], end[0] - middle[0]), tone)

    def head(self, tip: Point, angle: float, tone=SOFT, size=7.0) -> None:
        turned = [(size * math.cos(angle + turn), size * math.sin(angle + turn)) for turn in (0.42, -0.42)]
        corners = [tip, *((tip[0] - dx, tip[1] - dy) for dx, dy in turned)]
        self.add("polygon", points=_points(corners), fill=line(tone))

    def tower(self, x, steps: Sequence[tuple[float, str, str]], top: float, skips: Sequence[Point]) -> None:
        """Boxes and sums from the bottom up, (y, words, tone) each, and skips from height to height."""
        half = [10 if words == "+" else 14 for _, words, _ in steps]
        for n, (y, words, tone) in enumerate(steps):
            if words == "+":
                self.plus(x, y)
            else:
                self.box(x, y, 126, 28, words, tone)
            last = n == len(steps) - 1
            self.arrow((x, y - half[n]), (x, top if last else steps[n + 1][0] + half[n + 1]))
        for start, end in skips:
            self.arrow((x, start), (x - 96, start), (x - 96, end), (x - 10, end), tone="orange")


def _number(value) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(float(x))},{_number(float(y))}" for x, y in points)


def _formula(words: str) -> str:
    """Subscripts and superscripts as smaller text, lower or higher."""
    found, height = "", 0
    for mark, group, letter, plain in re.findall(r"([_^])(?:\{([^}]*)\}|(.))|([^_^]+)", words):
        wanted = {"_": 4, "^": -6}.get(mark, 0)
        move = f' dy="{wanted - height}"' if wanted != height else ""
        small = ' font-size="72%"' if mark else ""
        found += f"<tspan{move}{small}>{group or letter or plain}</tspan>"
        height = wanted
    return found
