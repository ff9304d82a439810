"""Pictures of nodes that listen to their neighbours."""

from __future__ import annotations

import math

from sheet import PALE, PAPER, SOFT, Point, Sheet, fill, line, mix, towards

PLACES: list[Point] = [(170, 150), (80, 80), (72, 200), (190, 52), (282, 96), (260, 230), (160, 262)]
EDGES = [(0, 1), (0, 2), (0, 3), (0, 5), (1, 2), (3, 4), (4, 5), (5, 6)]
NEAR = [j for i, j in EDGES if i == 0]  # who the listener, node 0, hears
FAINT = mix(SOFT, PAPER, 0.4)


def weight(i: int, j: int) -> float:
    """Of edge (i, j) in Â, loops included."""
    if i != j and (min(i, j), max(i, j)) not in EDGES:
        return 0.0
    return 1 / math.sqrt(math.prod(1 + sum(node in edge for edge in EDGES) for node in (i, j)))


def nodes(sheet: Sheet, speaker: int, listener: str) -> None:
    """All of them, and the edges that are not the listener's."""
    for a, b in EDGES[len(NEAR) :]:
        sheet.line(PLACES[a], PLACES[b], tone=FAINT, width=1.5)
    for node, place in enumerate(PLACES):
        tone = "blue" if node in NEAR else "grey"
        sheet.dot(*place, 14, "j" if node == speaker else "", tone, size=14)
    sheet.dot(*PLACES[0], 18, "i", "orange", colour=fill(listener), size=14)


def gcn() -> Sheet:
    sheet = Sheet(760, 310, "A node sums its neighbours, each divided by the roots of both degrees")
    nodes(sheet, 1, "orange")
    x, y = PLACES[0]
    for j in NEAR:
        sheet.arrow(PLACES[j], (x, y), gap=(16, 20), tone="blue", width=9 * weight(0, j))
        a, b = towards((x, y), PLACES[j], 48 if j == 3 else 58)
        aside, above = (24 if j in (3, 5) else 10), (-15 if j == 2 else 9)
        sheet.text(a + aside, b - above, f"{weight(0, j):.2f}", size=11, tone="blue")
    loop = f"M{x + 15} {y - 11} C{x + 62} {y - 36} {x + 62} {y + 30} {x + 20} {y + 9}"
    sheet.path(loop, tone="orange", width=9 * weight(0, 0))
    sheet.head((x + 18, y + 8), math.pi + 0.5, "orange")
    sheet.text(x + 70, y + 2, f"{weight(0, 0):.2f}", size=11, tone="orange")
    side, n = 22, len(PLACES)
    rows = []
    for i in range(n):
        tones = [line("orange" if i == j else "blue") for j in range(n)]
        rows.append([mix(PALE, tone, 2 * weight(i, j)) for j, tone in enumerate(tones)])
    sheet.matrix(400, 70, side, rows)
    sheet.box(400 + side * n / 2, 70 + side / 2, side * n + 4, side + 4, "", "orange", clear=True)
    sheet.text(400 + side * n / 2, 46, "Â = D^{−½} (A + I) D^{−½}", math=True)
    sheet.text(384, 81, "i", math=True)
    sheet.box(606, 147, 34, 154, "X", "green", math=True)
    sheet.box(672, 147, 22, 84, "W", "violet", math=True)
    for x, words in ((400 + side * n / 2, "fixed by the graph"), (606, "features"), (672, "learned")):
        sheet.note(x, 248, words)
    return sheet


def gat() -> Sheet:
    sheet = Sheet(760, 320, "A node listens more to some; in GATv2 whom it prefers depends on itself")
    nodes(sheet, 2, "grey")
    opinions = {"blue": (0.12, 0.55, 0.23, 0.1), "orange": (0.35, 0.08, 0.15, 0.42)}
    u, v = PLACES[0]
    for aside, (tone, alpha) in zip((-5, 5), opinions.items(), strict=True):
        for j, share in zip(NEAR, alpha, strict=True):
            x, y = PLACES[j]
            length = math.hypot(u - x, v - y)
            dx, dy = (y - v) / length * aside, (u - x) / length * aside
            ends = (x + dx, y + dy), (u + dx, v + dy)
            sheet.arrow(*ends, gap=(15, 19), tone=tone, width=1 + 6 * share, head=8)
    sheet.note(170, 298, "two heads, two opinions: width is α_{ij}", math=True, size=11)
    n, side = 6, 26
    speaker, listener = (0.2, 1.1, -0.6, 2.2, 0.5, -0.1), (0.9, -0.8, 0.3, 1.5, -1.4, 0.0)
    static = [[_leaky(q + k) for k in speaker] for q in listener]  # GAT's score, one number a node
    turned = [[abs(i - (5 * j + 2) % n) for j in range(n)] for i in range(n)]
    dynamic = [[-0.4 * d - 1.2 * _leaky(d - 1.0) for d in row] for row in turned]
    sides = (
        (372, "GATConv", static, "all rank speakers alike"),
        (576, "GATv2Conv", dynamic, "each its own way"),
    )
    for x, name, scores, remark in sides:
        shares = [[math.exp(score) / sum(map(math.exp, row)) for score in row] for row in scores]
        rows = [[mix("#f1f4f8", line("blue"), min(1.0, 1.35 * share)) for share in row] for row in shares]
        sheet.matrix(x, 84, side, rows)
        sheet.text(x + 78, 62, name, size=14)
        sheet.note(x + 78, 276, remark)
    sheet.text(356, 162, "i", math=True)
    sheet.text(450, 253, "j", math=True)
    return sheet


def _leaky(z: float) -> float:
    return z if z > 0 else 0.2 * z


def mpnn() -> Sheet:
    about = "A network writes a message for every edge; a node gathers them and updates its state"
    sheet = Sheet(760, 310, about)
    for n, y in enumerate((62, 154, 246), 1):
        sheet.dot(64, y, 18, f"x_{n}", "green")
        sheet.arrow((64, y), (170, y), gap=(18, 0))
        sheet.box(246, y, 150, 36, f"M(x_i, x_{n}, e_{{i{n}}})", "blue", math=True)
        sheet.text(124, y - 14, f"e_{{i{n}}}", math=True, size=12, tone="violet")
        sheet.arrow((322, y), (402, 154), gap=(0, 20))
    sheet.text(246, 290, "one network for all edges", size=12, tone="blue")
    sheet.dot(402, 154, 20, "□", "orange", size=16)
    sheet.note(412, 188, "sum, mean, max,", size=11, anchor="start")
    sheet.note(412, 203, "median, std …", size=11, anchor="start")
    sheet.arrow((422, 154), (498, 154))
    sheet.text(460, 138, "m_i", math=True)
    sheet.box(548, 154, 98, 40, "U(x_i, m_i)", "violet", math=True)
    sheet.arrow((598, 154), (660, 154), gap=(0, 20))
    sheet.dot(660, 154, 20, "x′_i", "green")
    sheet.arrow((660, 174), (660, 272), (548, 272), (548, 175), tone="green", dash=True)
    sheet.note(604, 290, "its state, next round")
    return sheet


def graph_transformer() -> Sheet:
    sheet = Sheet(760, 310, "The same blocks over the graph's edges, or over everyone with positions")
    n = 9
    angles = [2 * math.pi * k / n for k in range(n)]
    for centre, title, remark in (
        (136, "neighbors=None", "listens along edges"),
        (380, 'neighbors="everyone"', "listens to all; colour: position u₁"),
    ):
        everyone = "everyone" in title
        ring = [(centre + 92 * math.sin(angle), 160 - 92 * math.cos(angle)) for angle in angles]
        for i in reversed(range(n)):
            for j in range(i):
                linked = i - j in (1, n - 1)
                if linked or everyone:
                    tone = "blue" if j == 0 else mix(SOFT, PAPER, 0.2 if linked else 0.6)
                    sheet.line(ring[i], ring[j], tone=tone, width=2.0 if j == 0 else 1.0)
        for k, place in enumerate(ring):
            wave = math.cos(angles[k])  # the slowest of the ring's Laplacian
            colour = mix("#f7f7f5", line("orange" if wave > 0 else "violet"), 0.75 * abs(wave))
            own = {"words": "i", "tone": "blue"} if k == 0 else {"tone": "grey"}
            sheet.dot(*place, 13, colour=colour if everyone else None, **own)
        sheet.text(centre, 30, title)
        sheet.note(centre, 285, remark)
    steps = [
        (270, "E f + P u", "grey"),
        (212, "attention", "blue"),
        (164, "+", ""),
        (112, "feed-forward", "green"),
        (64, "+", ""),
    ]
    sheet.tower(640, steps, 28, [(242, 164), (142, 64)])
    sheet.note(728, 138, "× layers")
    return sheet
