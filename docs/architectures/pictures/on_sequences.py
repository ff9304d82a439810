"""Pictures of attention, of GPT, of recurrent nets, of norms, and of a model and its file."""

from __future__ import annotations

from collections.abc import Callable

from sheet import INK, PALE, PAPER, SOFT, Sheet, line, mix

HEARD = mix(line("blue"), PAPER, 0.25)
LINKS = {(0, 1), (0, 3), (1, 2), (2, 6), (3, 4), (4, 5), (4, 7), (5, 7)}


def attention() -> Sheet:
    sheet = Sheet(760, 372, "Who listens to whom in six patterns, and the transformer block")
    patterns: list[tuple[str, Callable[[int, int], bool]]] = [
        ("everyone", lambda i, j: True),
        ("causal", lambda i, j: j <= i),
        ("causal & window(2)", lambda i, j: 0 <= i - j <= 2),
        ("segments([3, 5])", lambda i, j: (i < 3) == (j < 3)),
        ("window(1) | global([0])", lambda i, j: abs(i - j) <= 1 or i * j == 0),
        ("a Graph", lambda i, j: i == j or (min(i, j), max(i, j)) in LINKS),
    ]
    for n, (name, hears) in enumerate(patterns):
        x, y = 52 + (n % 3) * 142, 52 + (n // 3) * 158
        sheet.matrix(x, y, 13, [[HEARD if hears(i, j) else PALE for j in range(8)] for i in range(8)])
        sheet.text(x + 52, y - 14, name, size=12)
    sheet.text(30, 104, "i", math=True)
    sheet.text(104, 172, "j", math=True)
    sheet.note(246, 346, "row i listens to column j where it is blue")
    steps = [
        (282, "norm", "grey"),
        (240, "attention", "blue"),
        (196, "+", ""),
        (148, "norm", "grey"),
        (106, "feed-forward", "green"),
        (62, "+", ""),
    ]
    sheet.tower(625, steps, 28, [(312, 196), (176, 62)])
    sheet.arrow((625, 326), (625, 296))
    sheet.text(625, 338, "x", math=True)
    for y in (254, 119):
        sheet.text(518, y, "skip", size=12, tone="orange", anchor="end")
    return sheet


def gpt() -> Sheet:
    sheet = Sheet(760, 350, "Each token listens to itself and those before it, and predicts the next")
    text, columns, rows = "once␣u", [60 + 62 * n for n in range(6)], [262, 196, 130]
    for n, (x, letter) in enumerate(zip(columns, text, strict=True)):
        last = n == len(text) - 1
        sheet.box(x, 312, 34, 28, letter, "grey", size=15)
        sheet.arrow((x, 298), (x, rows[0] + 12))
        for below, above in ((rows[0], rows[1]), (rows[1], rows[2])):
            for earlier in columns[: n + 1]:
                tone, width = ("blue", 1.6) if last else (mix(SOFT, PAPER, 0.45), 1.0)
                sheet.line((earlier, below - 12), (x, above + 12), tone=tone, width=width)
        for y in rows:
            sheet.dot(x, y, 12, tone="blue" if y < rows[0] else "green")
        sheet.arrow((x, rows[2] - 12), (x, 84))
        sheet.box(x, 70, 34, 28, "?" if last else text[n + 1], "orange", size=15)
    for y, words in ((312, "tokens"), (262, "E[x]"), (196, "block 1"), (130, "block L"), (70, "next")):
        sheet.note(394, y, words, anchor="start")
    sheet.text(215, 30, "h_l = block_l(h_{l−1})", math=True)
    sheet.text(606, 30, "drawing the next token", size=14)
    sheet.note(606, 52, "softmax(logits / temperature)")
    total = 0.0
    for n, chance in enumerate((0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.025, 0.015)):
        x, kept = 494 + 31 * n, total < 0.9
        total += chance
        sheet.bar(x, 270, 22, 420 * chance, "orange" if kept else "grey")
        sheet.text(x, 286, "pnstrlmx"[n], size=14)
        if kept and total >= 0.9:
            sheet.line((x + 15.5, 298), (x + 15.5, 200), tone=INK, dash=True)
            sheet.text(x + 19, 208, "top_p = 0.9", size=12, anchor="start")
    sheet.note(606, 322, "the token that crosses p stays in")
    return sheet


def rnn() -> Sheet:
    sheet = Sheet(760, 300, "A recurrent net unrolled, and how far gradients flow back")
    places = [78 + 118 * n for n in range(6)]
    for n, x in enumerate(places):
        sheet.dot(x, 152, 20, f"h_{n}", "grey" if n == 0 else "blue", size=15)
        if n == 0:
            continue
        before = places[n - 1]
        sheet.arrow((before, 152), (x, 152), gap=(20, 20), tone=INK)
        sheet.box(x, 232, 40, 28, f"x_{n}", "green", math=True)
        sheet.arrow((x, 218), (x, 172), tone=INK)
        sheet.box(x, 50, 40, 28, f"y_{n}", "violet", math=True)
        sheet.arrow((x, 132), (x, 64), tone=INK)
        if n > 1:
            flows = n > 3  # two steps back from h_5
            style = {"tone": "orange" if flows else "grey", "dash": not flows, "width": 1.6}
            sheet.bow((x - 8, 136), (before + 8, 136), 15, **style)
    sheet.text(places[1] - 59, 169, "W_h", math=True, size=12)
    sheet.text(places[1] + 16, 199, "W_x", math=True, size=12)
    sheet.text(places[4], 277, "∇h_t = e_t + W_h^T (φ′ ⊙ ∇h_{t+1})", math=True, tone="orange")
    sheet.note(44, 277, "truncate=2: gradients flow two steps back, no further", anchor="start")
    return sheet


def norms() -> Sheet:
    sheet = Sheet(760, 250, "What each norm averages over")
    kinds: list[tuple[str, Callable[[int, int], bool]]] = [
        ("BatchNorm", lambda sample, channel: channel == 0),
        ("InstanceNorm", lambda sample, channel: sample == 0 and channel == 0),
        ("GroupNorm", lambda sample, channel: sample == 0 and channel < 2),
        ("GroupNorm, 1 group", lambda sample, channel: sample == 0),
    ]
    for n, (name, chosen) in enumerate(kinds):
        _cube(sheet, 34 + 150 * n, 114, chosen)
        sheet.text(78 + 150 * n, 40, name)
    sheet.note(528, 57, 'norm="layer" of images', size=11)
    sheet.text(20, 148, "N", math=True)
    sheet.text(68, 196, "C", math=True)
    sheet.note(136, 94, "places", size=11, anchor="start")
    pale = mix(line("blue"), PAPER, 0.85)
    sheet.matrix(634, 92, 15, [[HEARD if row == 2 else pale for _ in range(6)] for row in range(6)])
    sheet.text(679, 40, "LayerNorm, RMSNorm")
    sheet.note(679, 57, "of (…, D)", size=11)
    sheet.text(679, 200, "D", math=True)
    sheet.note(622, 137, "tokens", size=11, anchor="end")
    sheet.note(380, 228, "blue shares one mean and one deviation (RMSNorm: one mean square)")
    return sheet


def _cube(sheet: Sheet, x: float, y: float, chosen: Callable[[int, int], bool]) -> None:
    """Samples down, channels along, places into the depth; what is chosen is blue on the faces one sees."""
    n, s, d = 4, 17.0, 7.1

    def colour(sample, channel, shade):
        return mix(HEARD if chosen(sample, channel) else mix(line("blue"), PAPER, 0.85), INK, shade)

    for one in range(n):
        for other in range(n):
            a, b = x + other * s, y + one * s
            sheet.shape([(a, b), (a + s, b), (a + s, b + s), (a, b + s)], colour(one, other, 0.0))
            a, b = x + one * s + other * d, y - other * d
            sheet.shape([(a, b), (a + s, b), (a + s + d, b - d), (a + d, b - d)], colour(0, one, 0.06))
            a, b = x + n * s + other * d, y + one * s - other * d
            sheet.shape([(a, b), (a + d, b - d), (a + d, b + s - d), (a, b + s)], colour(one, n - 1, 0.12))


def model() -> Sheet:
    sheet = Sheet(760, 250, "A model, its file, and the model again")
    for x, words in ((102, "GPT(vocabulary=87,\nlayers=3, …)"), (658, "the same model,\nto the last digit")):
        sheet.box(x, 118, 152, 70, words, "blue", size=12)
    sheet.box(380, 118, 180, 156, "", "paper")
    sheet.text(380, 58, "gpt.safetensors", size=12)
    sheet.box(380, 96, 156, 42, "header: class, version,\nconfig as JSON", "orange", size=11)
    sheet.box(380, 152, 156, 58, "weights, each with\nits name and shape", "green", size=11)
    for x, word, remark in ((234, "save", "whole, or not at all"), (526, "load", "nothing is executed")):
        sheet.arrow((x - 54, 118), (x + 54, 118))
        sheet.text(x, 102, word)
        sheet.note(x, 138, remark, size=11)
    sheet.note(380, 224, "a file that is truncated, of another class or of another version says so")
    return sheet
