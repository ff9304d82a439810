"""`python docs/ideas/pictures` draws the pictures of these pages anew, beside itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "architectures" / "pictures"))

from sheet import PALE, PAPER, SOFT, Sheet, line, mix  # noqa: E402

HEARD = mix(line("blue"), PAPER, 0.25)


def one_line() -> Sheet:
    """A listener and whom it hears: in a sequence, in an image, on a graph."""
    sheet = Sheet(
        760, 300, "One listener hears its neighbours by weight: in a sequence, in an image, on a graph"
    )
    weights = softmax([0.3, 1.6, 0.2, 0.9, 1.2])
    spots = [(40 + 42 * n, 176) for n in range(6)]
    for n, weight in enumerate(weights):
        sheet.bow(
            (spots[n][0], 164),
            (spots[4][0], 162),
            12 * (5 - n) if n < 4 else 0,
            tone="blue",
            width=1 + 9 * weight,
        )
    for n, (x, y) in enumerate(spots):
        sheet.dot(x, y, 13, tone="orange" if n == 4 else "blue" if n < 4 else "grey")
    sheet.text(145, 222, "a sequence: whoever came before", size=13)
    sheet.note(145, 244, "Causal()")
    image = [(318 + 30 * column, 96 + 30 * row) for row in range(4) for column in range(5)]
    centre = image[12]
    for n, (x, y) in enumerate(image):
        near = max(abs(x - centre[0]), abs(y - centre[1])) <= 30
        weight = math.exp(-(abs(x - centre[0]) + abs(y - centre[1])) / 40)
        colour = mix(PALE, HEARD, weight) if near else PALE
        sheet.cell(
            x - 14, y - 14, 28, colour, tone=line("orange") if n == 12 else PAPER, width=2.5 if n == 12 else 1
        )
    sheet.text(378, 222, "an image: the places around", size=13)
    sheet.note(378, 244, "Relative(table)")
    nodes = {
        "i": (640, 140),
        "a": (560, 90),
        "b": (580, 190),
        "c": (700, 84),
        "d": (722, 180),
        "e": (520, 140),
    }
    for name, weight in zip("abc", softmax([1.4, 0.2, 0.8]), strict=True):
        sheet.arrow(nodes[name], nodes["i"], gap=(14, 15), tone="blue", width=1 + 9 * weight, head=10)
    for one, two in (("a", "e"), ("e", "b"), ("c", "d")):
        sheet.line(nodes[one], nodes[two], tone=SOFT)
    for name, (x, y) in nodes.items():
        sheet.dot(x, y, 13, tone="orange" if name == "i" else "blue" if name in "abc" else "grey")
    sheet.text(630, 222, "a graph: whoever has an edge to it", size=13)
    sheet.note(630, 244, "Graph.from_edges(source, target)")
    sheet.text(380, 34, "out_i = Σ_j sim(q_i, k_j; i−j) v_j / Σ_j sim(q_i, k_j; i−j)", math=True)
    sheet.note(380, 276, "the listener is orange, whom it hears is blue, and thick where the weight is")
    return sheet


def similarities() -> Sheet:
    """How much more a key that fits better is heard: weight of a key against its score, by similarity."""
    sheet = Sheet(760, 300, "What each similarity makes of the same five scores")
    scores = [-1.0, 0.0, 0.5, 1.0, 2.0]
    kinds: list[tuple[str, Sequence[float]]] = [
        ("Uniform()", [0.2] * 5),
        ("Softmax(scale=0.5)", softmax([0.5 * s for s in scores])),
        ("Softmax(scale=1)", softmax(scores)),
        ("Softmax(scale=3)", softmax([3 * s for s in scores])),
        ("Argmax()", [0, 0, 0, 0, 1]),
        ("Polynomial(degree=2)", shares([(s + 1) ** 2 for s in scores])),
    ]
    for n, (name, weights) in enumerate(kinds):
        left = 26 + 122 * n
        for k, weight in enumerate(weights):
            sheet.bar(left + 12 + 20 * k, 220, 14, 160 * weight + 0.5, "orange" if k == 4 else "blue")
        sheet.line((left, 220), (left + 104, 220), tone=SOFT)
        for k, score in enumerate(scores):
            sheet.note(left + 12 + 20 * k, 234, f"{score:g}", size=10)
        sheet.text(left + 52, 258, name, size=11)
    sheet.note(380, 284, "below each bar the score q·k, its height the weight")
    return sheet


def neighbors() -> Sheet:
    """Who listens to whom: row i hears column j where it is blue."""
    sheet = Sheet(760, 236, "Who listens to whom in five patterns, and a query at the end of longer keys")
    patterns: list[tuple[str, int, Callable[[int, int], bool]]] = [
        ("Everyone()", 8, lambda i, j: True),
        ("Causal()", 8, lambda i, j: j <= i),
        ("Causal() & Window(2)", 8, lambda i, j: 0 <= i - j <= 2),
        ("Segments([3, 5])", 8, lambda i, j: (i < 3) == (j < 3)),
        ("Window(1) | Global([0])", 8, lambda i, j: abs(i - j) <= 1 or i * j == 0),
        ("Causal(), 3 queries", 3, lambda i, j: j <= i + 5),
    ]
    for n, (name, rows, hears) in enumerate(patterns):
        left = 22 + 124 * n
        grid = [[HEARD if hears(i, j) else PALE for j in range(8)] for i in range(rows)]
        sheet.matrix(left, 60 + 12 * (8 - rows), 12, grid)
        sheet.text(left + 48, 180, name, size=11)
    sheet.note(380, 26, "row i listens to column j where it is blue")
    sheet.note(
        380,
        212,
        "the last one: with fewer queries than keys their ends align, as decoding with a cache needs",
    )
    return sheet


def positions() -> Sheet:
    """What a distance i − j adds to the log-score."""
    sheet = Sheet(760, 300, "What the distance between listener and speaker adds to a score")
    far = range(-16, 17)
    kinds: list[tuple[str, list[tuple[str, Callable[[int], float]]]]] = [
        ("Alibi(slopes)", [("blue", lambda d: -abs(d) / 4), ("orange", lambda d: -abs(d) / 16)]),
        ("T5Buckets(table)", [("violet", lambda d: -1.3 * bucket(abs(d)) / 3)]),
        ("Relative(table)", [("green", lambda d: 0.6 * math.sin(1.1 * d) - 0.01 * d * d)]),
        ("Rotary(), q = k", [("blue", lambda d: 4 * sum(math.cos(d * r) for r in (1, 0.3, 0.1)) / 3 - 4)]),
    ]
    for n, (name, curves) in enumerate(kinds):
        centre = 102 + 186 * n
        sheet.line((centre - 80, 90), (centre + 80, 90), tone=PALE)
        sheet.line((centre, 76), (centre, 220), tone=PALE)
        for tone, curve in curves:
            sheet.line(*((centre + 5 * d, 90 - 22 * max(-6, curve(d))) for d in far), tone=tone, width=2)
        sheet.text(centre, 246, name, size=12)
    sheet.text(60, 60, "p_{i−j}", math=True)
    sheet.note(380, 30, "added to the log-score, from 16 places behind to 16 ahead")
    sheet.note(
        380,
        278,
        "ALiBi and T5 know near from far; a table says anything; rotary turns queries and keys instead",
    )
    return sheet


def softmax(scores: Sequence[float]) -> list[float]:
    return shares([math.exp(score) for score in scores])


def shares(numbers: Sequence[float]) -> list[float]:
    return [number / sum(numbers) for number in numbers]


def bucket(distance: int) -> int:
    """T5's: one each up to 4, then wider and wider."""
    return distance if distance < 4 else min(7, 4 + int(math.log(distance / 4) / math.log(16 / 4) * 4))


PICTURES = {draw.__name__: draw for draw in (one_line, similarities, neighbors, positions)}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
