"""A picture as a kept model takes it."""

from __future__ import annotations


def prepared(found, picture, invert: bool = False):
    """A picture as a kept model takes it: from 0 to 1, to be shown; as its input; and what was done to it."""
    notes = {"mean": 0.0, "deviation": 1.0, "brightness": None, **found.notes}
    missing = [name for name in ("classes", "channels", "size") if name not in notes]
    if missing:
        raise ValueError(f"{found}: was kept without its {', '.join(missing)}; see lab.keep")
    shown, done = in_channels(picture, notes["channels"])
    shown, more = fitted(shown.float() / 255, notes["size"])
    brightness = float(shown.mean())
    if notes["brightness"] is not None and abs(brightness - notes["brightness"]) > 0.35:
        usual = f"{100 * notes['brightness']:.0f} % bright on average, this one {100 * brightness:.0f} %"
        more.append(f"the pictures it knows are {usual}: perhaps --{'no-' * invert}invert")
    return shown, (shown - notes["mean"]) / notes["deviation"], done + more


def in_channels(picture, wanted: int):
    """A picture with as many channels as the model takes, and what was done to it."""
    import torch

    if len(picture) == wanted:
        return picture, []
    if wanted == 1:  # as Pillow and television weigh the colours
        grey = (picture.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0, keepdim=True)
        return grey.round().byte(), ["greyed: the model takes one channel"]
    if wanted == 3:
        return picture.expand(3, -1, -1), ["grey taken for all three colours"]
    raise ValueError(f"the model takes pictures of {wanted} channels; this one has {len(picture)}")


def fitted(picture, size: list[int]):
    """The middle of a picture in the model's proportions, at its size, and what was done to it."""
    from torch.nn import functional as F

    height, width = picture.shape[-2:]
    if [height, width] == list(size):
        return picture, []
    scale = min(height / size[0], width / size[1])
    tall, wide = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    top, left = (height - tall) // 2, (width - wide) // 2
    middle = picture[..., top : top + tall, left : left + wide]
    done = [f"cut to its middle, {tall} × {wide}"] if (tall, wide) != (height, width) else []
    if [tall, wide] != list(size):
        middle = F.interpolate(
            middle[None], tuple(size), mode="bilinear", antialias=True, align_corners=False
        )[0]
        done.append(f"resized from {tall} × {wide} to {size[0]} × {size[1]}")
    return middle.clamp(0, 1), done
