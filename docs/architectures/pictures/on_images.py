"""Pictures of what works on images, and of autoencoders."""

from __future__ import annotations

import math
from collections.abc import Callable

from sheet import INK, PALE, PAPER, SOFT, Point, Sheet, fill, line, mix

PIXELS = 6  # of a patch, in each direction
VISIBLE = (1, 6, 8, 15)  # patches


def scene(u: float, v: float) -> str:
    """A small landscape on the unit square: sky, sun, two hills."""
    if v > 0.72 - 0.16 * math.sin(3.0 * u + 0.4):
        return "#7fae8b"
    if v > 0.62 - 0.25 * math.exp(-((u - 0.75) ** 2) / 0.05):
        return "#a8b9cf"
    if (u - 0.3) ** 2 + (v - 0.27) ** 2 < 0.022:
        return "#f0b662"
    return mix("#cfe0f0", "#f6e9d8", v / 0.7)


def patch(p: int, *, blurred: bool = False) -> list[list[str]]:
    """The colours of one of 4 × 4 patches of the landscape; blurred, they are near their mean."""
    row, column = divmod(p, 4)
    middles = [(k + 0.5) / PIXELS for k in range(PIXELS)]
    colours = [[scene((column + b) / 4, (row + a) / 4) for b in middles] for a in middles]
    if not blurred:
        return colours
    flat = [colour for line_of_colours in colours for colour in line_of_colours]
    mean = flat[0]
    for n, colour in enumerate(flat, 1):
        mean = mix(mean, colour, 1 / n)
    return [[mix(colour, mean, 0.65) for colour in line_of_colours] for line_of_colours in colours]


def photo(sheet: Sheet, x, y, *, gap=0, look: Callable[[int], str] = lambda p: "shown") -> None:
    """The landscape in patches; `look` says of each whether it is "shown", "hidden" or "guessed"."""
    for p in range(16):
        left, top = x + p % 4 * (36 + gap), y + p // 4 * (36 + gap)
        if look(p) == "hidden":
            sheet.cell(left, top, 36, PALE, tone="#d4d1c9")
        else:
            sheet.matrix(left, top, 6, patch(p, blurred=look(p) == "guessed"), lines=False)


def vit() -> Sheet:
    sheet = Sheet(760, 296, "An image cut into patches, which are the tokens of a transformer")
    photo(sheet, 32, 60)
    sheet.note(104, 230, "image")
    sheet.arrow((182, 132), (206, 132))
    photo(sheet, 214, 51, gap=6)
    sheet.note(295, 230, "patches")
    sheet.arrow((384, 132), (408, 132))
    sheet.text(395, 116, "E", math=True)
    for n, name in enumerate(["class", "1", "2", "3", "", "16"]):
        y = 42 + 36 * n
        if not name:
            sheet.text(440, y, "⋮", size=16, tone=SOFT)
            continue
        sheet.box(440, y, 50, 26, name, "orange" if n == 0 else "green", size=12)
        sheet.text(484, y, f"+ p_{{{name if n else 0}}}", math=True, size=11)
        sheet.arrow((504, y), (530, y))
    sheet.box(578, 132, 90, 212, "L ×\n\ntransformer\nblock\n\nall patches\nlisten to all", "blue", size=12)
    sheet.arrow((624, 42), (652, 42))
    sheet.box(694, 42, 80, 28, "W norm(·)", "violet", size=12)
    sheet.arrow((694, 56), (694, 90))
    for n, share in enumerate((0.2, 0.9, 0.35, 0.1, 0.25)):
        sheet.bar(667 + 13 * n, 150, 10, 52 * share, "violet")
    sheet.note(694, 166, "logits")
    words = 'pool="class" reads the answer from a token of its own, pool="mean" from the mean over patches'
    sheet.note(380, 272, words)
    return sheet


def masked_autoencoder() -> Sheet:
    sheet = Sheet(760, 286, "Most patches are hidden; the encoder sees the rest, the decoder fills them in")
    photo(sheet, 28, 60, look=lambda p: "shown" if p in VISIBLE else "hidden")
    sheet.note(100, 224, "three of four patches hidden")
    sheet.arrow((178, 132), (206, 132))
    for n, p in enumerate(VISIBLE):
        y = 75 + 38 * n
        sheet.matrix(214, y - 12, 4, patch(p), lines=False)
        sheet.arrow((244, y), (264, y))
    sheet.box(312, 132, 92, 164, "encoder\n\na ViT, wide\nand deep", "blue")
    sheet.arrow((360, 132), (386, 132))
    for p in range(16):
        sheet.box(400, 45 + 11.6 * p, 22, 8, "", "blue" if p in VISIBLE else "grey")
    sheet.note(400, 244, "mask tokens")
    sheet.note(400, 260, "fill the gaps")
    sheet.arrow((416, 132), (442, 132))
    sheet.box(480, 132, 74, 112, "decoder\n\nnarrow,\nshallow", "violet")
    sheet.arrow((519, 132), (546, 132))
    photo(sheet, 554, 60, look=lambda p: "shown" if p in VISIBLE else "guessed")
    sheet.note(626, 224, "filled in")
    sheet.text(626, 250, "loss = mean over hidden p of |x̂_p − x_p|^2", math=True, size=11)
    return sheet


def convnet() -> Sheet:
    sheet = Sheet(760, 330, "What a convolution sees beyond the edge")
    rows = [
        ('padding="valid"', "", ""),
        ('padding="same"', "0", "0"),
        ('padding="full"', "00", "00"),
        ('… mode="circular"', "de", "ab"),
        ('… mode="reflect"', "cb", "dc"),
        ('… mode="replicate"', "aa", "ee"),
    ]
    colours = {letter: mix(line("blue"), "#f2f6fa", 0.12 + 0.2 * n) for n, letter in enumerate("abcde")}
    for n, (name, before, after) in enumerate(rows):
        y, places = 40 + 43 * n, f"{before}abcde{after}"
        sheet.text(28, y + 15, name, anchor="start")
        for k, letter in enumerate(places, -len(before)):
            x, colour = 235 + 30 * k, colours.get(letter, PAPER)
            if 0 <= k < 5:
                sheet.cell(x, y, 30, colour, letter, width=1.5, ink=PAPER if letter in "ab" else INK)
            else:
                sheet.cell(x, y, 30, mix(colour, PAPER, 0.35), letter, tone=SOFT, width=0.8)
        sheet.note(466, y + 15, f"5 places → {len(places) - 2}", anchor="start")
    sheet.box(310, 163, 150, 262, "", "orange", clear=True)
    sheet.text(310, 310, "the image", size=12, tone="orange")
    for k in range(3):
        sheet.cell(600 + 30 * k, 120, 30, fill("green"), f"w_{k}", tone=line("green"), width=1.4, math=True)
    sheet.note(645, 100, "kernel 3")
    sheet.note(645, 180, "zeros say where the edge is;")
    sheet.note(645, 198, "circular padding does not")
    return sheet


def convolution_as_attention() -> Sheet:
    sheet = Sheet(760, 300, "Three heads that look at one place each, and the convolution they add up to")
    tones, n, side = ("orange", "blue", "green"), 9, 14
    heads = zip(
        (36, 210, 384), tones, ("the place before", "the place itself", "the place after"), strict=True
    )
    for h, (x, tone, where) in enumerate(heads):
        rows = [[line(tone) if j - i == h - 1 else PALE for j in range(n)] for i in range(n)]
        sheet.matrix(x, 84, side, rows)
        sheet.text(x + 63, 66, f"head {h + 1}: {where}", size=12, tone=tone)
        sheet.text(x + 63, 230, f"a^{h + 1}, with W^{h + 1} = w_{h}", math=True, size=12)
        sheet.text(x + 150 + 15 * (h == 2), 147, "+" if h < 2 else "=", size=22)
    rows = [[line(tones[j - i + 1]) if abs(j - i) <= 1 else PALE for j in range(n)] for i in range(n)]
    sheet.matrix(574, 84, side, rows)
    sheet.text(637, 66, "a convolution, kernel 3", size=12)
    sheet.text(637, 230, "w_0 x_{i−1} + w_1 x_i + w_2 x_{i+1}", math=True, size=12)
    sheet.text(380, 30, "y_i = Σ_h W^h Σ_m a^h_m x_{i+m}", math=True, size=14)
    words = "a table p that is 0 at one distance and −∞ elsewhere: softmax(p) is one there, whatever x is"
    sheet.note(380, 270, words)
    return sheet


def resnet() -> Sheet:
    sheet = Sheet(760, 330, "A plain block, a residual block, and three stages of them")
    for x, name in ((110, "PlainNet"), (290, "ResNet")):
        sheet.text(x, 26, name, size=14)
        sheet.text(x, 60, "x_l", math=True)
        for y, above, words in ((104, 72, "3×3 conv, norm, relu"), (156, 118, "3×3 conv, norm")):
            sheet.arrow((x, above), (x, y - 14))
            sheet.box(x, y, 146, 28, words, "blue", size=12)
        if name == "ResNet":
            sheet.arrow((x, 170), (x, 194))
            sheet.plus(x, 204)
            sheet.arrow((x, 80), (x + 92, 80), (x + 92, 204), (x + 10, 204), tone="orange", width=2)
            sheet.text(x + 98, 144, "s(x_l)", math=True, tone="orange", anchor="start")
        sheet.arrow((x, 170 if name == "PlainNet" else 214), (x, 236))
        sheet.box(x, 250, 60, 28, "relu", "grey", size=12)
        sheet.arrow((x, 264), (x, 294))
        sheet.text(x, 308, "x_{l+1}", math=True)
    sheet.text(606, 26, "6n + 2 layers", size=14)
    sheet.box(490, 160, 10, 150, "", "grey")
    sheet.note(490, 250, "conv", size=11)
    sheet.arrow((496, 160), (515, 160))
    stages = ((538, 150, 16, "blue"), (600, 106, 32, "green"), (662, 74, 64, "violet"))
    for stage, (x, side, width, tone) in enumerate(stages):
        for n in (-1, 0, 1):
            sheet.box(x + 13 * n, 160, 10, side, "", tone)
        sheet.note(x, 146 - side / 2, f"{32 >> stage}×{32 >> stage}", size=11)
        sheet.note(x, 175 + side / 2, f"{width} wide", size=11)
        sheet.arrow((x + 20, 160), (x + 40, 160))
    sheet.box(716, 160, 24, 54, "W", "orange", math=True)
    sheet.note(716, 202, "mean", size=11)
    sheet.note(606, 285, "n blocks a stage, two layers each")
    return sheet


def unet() -> Sheet:
    sheet = Sheet(760, 366, "Down to what is there, up again to where it is, with skips across")

    def pair(level: int) -> tuple[float, float, float]:
        """Middle and height of the two bars on the way down; those on the way up are their mirror image."""
        return 84 + 74 * level, 76 + 62 * level, 50 - 8 * level

    for level, width in enumerate((32, 64, 128, 256, 512)):
        x, y, tall = pair(level)
        for centre, tone in ((x, "blue"), (760 - x, "green")):
            for side in (-8, 8):
                sheet.box(centre + side, y, 13, tall, "", tone if level < 4 else "violet")
        if level == 4:
            sheet.note(380, y + 24, str(width), size=11)
            break
        sheet.note(x - 30, y, str(width), size=11)
        sheet.note(790 - x, y, str(width), size=11)
        below_x, below_y, below_tall = pair(level + 1)
        high, low = (x + 8, y + tall / 2 + 3), (below_x - 8, below_y - below_tall / 2 - 3)
        sheet.arrow(high, low, tone="blue")
        sheet.arrow(_mirror(low), _mirror(high), tone="green")
        sheet.arrow((x + 20, y), (740 - x, y), tone="orange", width=1.8)
    sheet.text(380, 60, "skip: [down_l, T up_{l+1}]", math=True, tone="orange", size=12)
    sheet.note(380, 24, "two bars: conv² = (3×3 conv, norm, relu) twice; numbers are channels")
    sheet.note(39, 30, "image")
    sheet.arrow((39, 40), (39, 58), (66, 58))
    sheet.note(721, 30, "logits")
    sheet.arrow((694, 58), (721, 58), (721, 40))
    for x, anchor, tone, words in (
        (66, "start", "blue", "max-pool"),
        (694, "end", "green", "transposed conv"),
    ):
        sheet.text(x, 290, words, size=12, tone=tone, anchor=anchor)
        sheet.note(x, 308, "halves the image" if tone == "blue" else "doubles it", anchor=anchor)
    return sheet


def _mirror(point: Point) -> Point:
    return 760 - point[0], point[1]


def autoencoder() -> Sheet:
    sheet = Sheet(760, 286, "Through a narrow passage and back; the target is the clean input")
    sheet.note(376, 30, "linear, without decay: the code spans the first principal components")
    sheet.box(60, 130, 30, 150, "x", "green", math=True)
    sheet.arrow((76, 130), (108, 130))
    sheet.box(152, 130, 86, 40, "corrupt", "orange", dash=True)
    sheet.note(152, 168, "noise, or holes;", size=11)
    sheet.note(152, 183, "in training only", size=11)
    sheet.arrow((196, 130), (230, 130))
    sheet.shape([(232, 55), (348, 104), (348, 156), (232, 205)], fill("blue"), "blue", 1.5)
    sheet.text(290, 130, "encode")
    sheet.line((348, 130), (404, 130))
    sheet.box(376, 130, 26, 52, "z", "violet", math=True)
    sheet.note(376, 178, "the code", size=11)
    sheet.shape([(404, 104), (520, 55), (520, 205), (404, 156)], fill("blue"), "blue", 1.5)
    sheet.text(462, 130, "decode")
    sheet.arrow((520, 130), (548, 130))
    sheet.box(566, 130, 30, 150, "x̂", "green", math=True)
    sheet.arrow((582, 130), (622, 130))
    sheet.box(680, 130, 110, 40, "‖x − x̂‖^2", "grey", math=True)
    sheet.arrow((60, 206), (60, 250), (680, 250), (680, 151), tone="green")
    sheet.text(376, 238, "the clean input", size=12, tone="green")
    return sheet
