"""The fix as a diff, where the line is known and the change is sure."""

from __future__ import annotations

from ..facts import Facts, Seen, Site
from ..findings import Finding
from ..source import Source
from . import loop, signal

TEXTS: dict[str, str] = {}  # sources of files that are run from memory
MAKERS = {**loop.MAKERS, **signal.MAKERS}
_BUILT = (  # mended where the optimizer is built
    "parameters-missing-from-optimizer",
    "learning-rate-too-high",
    "learning-rate-too-low",
    "parameter-never-updated",
    "update-too-large",
)
_CALLED = (  # to be seen where the model is called
    "eval-mode-in-training",
    "same-batch-every-step",
    "causal-leak",
    "batch-leak",
    "not-equivariant",
    "dead-units",
    "vanishing-gradients",
    "exploding-gradients",
)


def source(file: str) -> Source:
    return Source(file, TEXTS.get(file))


def suggest(facts: Facts, found: list[Finding]) -> None:
    """Place and patch of every finding, as far as they are known."""
    stepping = [seen for seen in facts.optimizers.values() if seen.steps]
    for entry in found:
        seen = entry.subject if isinstance(entry.subject, Seen) else stepping[0] if stepping else None
        site = _site(entry.name, facts, seen)
        text = source(site[0]) if site[0] else None
        if text is None or not text.text:
            continue
        if entry.place is None:
            entry.place = text.place(site[1])
        maker = MAKERS.get(entry.name)
        if maker is not None and seen is not None and not entry.patch:
            try:
                entry.patch = text.diff(maker(text, facts, seen, entry))
            except Exception:
                entry.patch = ""


def _site(name: str, facts: Facts, seen: Seen | None) -> Site:
    """The line where a finding of this name is to be seen."""
    calls = list(facts.models.values())
    if name in _CALLED:
        return next((c.site for c in calls if c.site[0]), facts.loss_site)
    if name == "train-mode-in-evaluation":
        return next((c.pass_site for c in calls if c.pass_site[0]), ("", 0))
    if seen is None:
        return facts.loss_site
    chosen = {
        "gradients-not-cleared": seen.backward_site,
        "zero-grad-before-step": seen.zero_site,
        "step-before-backward": seen.step_site,
        "scheduler-before-optimizer": seen.schedule_site,
        "clip-after-step": seen.clip_site,
        "clip-of-scaled-gradients": seen.clip_site,
        **dict.fromkeys(_BUILT, seen.built),
    }.get(name, facts.loss_site)
    return chosen if chosen[0] else seen.step_site
