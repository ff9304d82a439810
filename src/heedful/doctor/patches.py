"""The fix as a diff, where the line is known and the change is sure."""

from __future__ import annotations

import ast

from .facts import Facts, Seen, Site
from .findings import Finding
from .source import Source

TEXTS: dict[str, str] = {}  # sources of files that are run from memory


def source(file: str) -> Source:
    return Source(file, TEXTS.get(file))


def suggest(facts: Facts, found: list[Finding]) -> None:
    """Place and patch of every finding, as far as they are known."""
    stepping = [seen for seen in facts.optimizers.values() if seen.steps]
    seen = stepping[0] if stepping else None
    for entry in found:
        site = _site(entry.name, facts, seen)
        if not site[0]:
            continue
        text = source(site[0])
        if not text.text:
            continue
        if entry.place is None:
            entry.place = text.place(site[1])
        maker = _MAKERS.get(entry.name)
        if maker is not None and not entry.patch:
            try:
                entry.patch = text.diff(maker(text, facts, seen, entry))
            except Exception:
                entry.patch = ""


def _site(name: str, facts: Facts, seen: Seen | None) -> Site:
    if seen is not None:
        chosen = {
            "zero-grad-before-step": seen.zero_site,
            "step-before-backward": seen.step_site,
            "scheduler-before-optimizer": seen.schedule_site,
            "clip-after-step": seen.clip_site,
            "clip-of-scaled-gradients": seen.clip_site,
            "parameters-missing-from-optimizer": seen.built,
            "learning-rate-too-high": seen.built,
            "learning-rate-too-low": seen.built,
            "parameter-never-updated": seen.built,
            "update-too-large": seen.built,
        }.get(name)
        if chosen is not None:
            return chosen if chosen[0] else seen.step_site
    calls = list(facts.models.values())
    if name == "train-mode-in-evaluation":
        return next((c.pass_site for c in calls if c.pass_site[0]), ("", 0))
    if name in (
        "eval-mode-in-training",
        "causal-leak",
        "batch-leak",
        "dead-units",
        "vanishing-gradients",
        "exploding-gradients",
    ):
        return next((c.site for c in calls if c.site[0]), facts.loss_site)
    if name == "same-batch-every-step":
        return next((c.site for c in calls if c.site[0]), ("", 0))
    return facts.loss_site


def _optimizer_name(text: Source, seen: Seen) -> str:
    name = text.receiver(seen.step_site[1], "step") if seen.step_site[0] == text.file else ""
    call = text.call(seen.step_site[1], "step")
    if call is not None and call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)):
        return text.segment(call.args[0])  # scaler.step(optimizer)
    return name


def _clear(text, facts, seen, entry):
    name = _optimizer_name(text, seen)
    return text.insert_before(seen.backward_site[1], f"{name}.zero_grad()") if name else ""


def _move_zero(text, facts, seen, entry):
    return text.move_before(seen.zero_site[1], seen.backward_site[1])


def _move_step(text, facts, seen, entry):
    return text.move_after(seen.step_site[1], seen.backward_site[1])


def _move_schedule(text, facts, seen, entry):
    same = text.indent(seen.schedule_site[1]) == text.indent(seen.step_site[1])
    return text.move_after(seen.schedule_site[1], seen.step_site[1]) if same else ""


def _move_clip(text, facts, seen, entry):
    return text.move_before(seen.clip_site[1], seen.step_site[1])


def _unscale(text, facts, seen, entry):
    call = text.call(seen.step_site[1], "step")
    if call is None or not call.args:
        return ""
    scaler, optimizer = text.receiver(seen.step_site[1], "step"), text.segment(call.args[0])
    return text.insert_before(seen.clip_site[1], f"{scaler}.unscale_({optimizer})")


def _scaled_loss(sign: str):
    def make(text, facts, seen, entry):
        pieces = max((count for count, _ in seen.groups), default=0)
        name = text.receiver(seen.backward_site[1], "backward")
        call = text.call(seen.backward_site[1], "backward")
        if not name or call is None or not isinstance(call.func, ast.Attribute):
            return ""
        inner = name[1:-1] if name.startswith("(") and name.endswith(")") else name
        return text.replace(
            call.func.value, f"({inner} {sign} {pieces})" if inner == name else f"(({inner}) {sign} {pieces})"
        )

    return make


def _train_mode(text, facts, seen, entry):
    for calls in facts.models.values():
        if calls.site[0] == text.file:
            name = _called(text, calls.site[1])
            return text.insert_before(calls.site[1], f"{name}.train()") if name else ""
    return ""


def _called(text: Source, line: int) -> str:
    """`model` of `out = model(x)`."""
    for node in ast.walk(text.tree) if text.tree else ():
        if (
            isinstance(node, ast.Call)
            and node.lineno <= line <= (node.end_lineno or 0)
            and isinstance(node.func, (ast.Name, ast.Attribute))
        ):
            name = text.segment(node.func)
            if name.split(".")[-1] in ("model", "net", "network", "classifier", "module") or name.endswith(
                ("model", "net")
            ):
                return name
    return ""


def _evaluation_mode(text, facts, seen, entry):
    for calls in facts.models.values():
        line = calls.pass_site[1]
        name = _called(text, line) if calls.pass_site[0] == text.file else ""
        if not name:
            continue
        blocks = [
            node
            for node in ast.walk(text.tree)
            if isinstance(node, ast.With) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        if not blocks:
            continue
        block = min(blocks, key=lambda node: node.lineno)
        after = Source(text.file, text.insert_after(block.lineno, f"{name}.train()"))
        return after.insert_before(block.lineno, f"{name}.eval()")
    return ""


def _numbers_only(text, facts, seen, entry):
    """total += loss becomes total += loss.item()."""
    loss = text.receiver(seen.backward_site[1], "backward") if seen else ""
    for node in ast.walk(text.tree) if text.tree else ():
        if isinstance(node, ast.AugAssign) and text.segment(node.value) == loss:
            return text.replace(node.value, f"{loss}.item()")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and node.args
            and text.segment(node.args[0]) == loss
        ):
            return text.replace(node.args[0], f"{loss}.item()")
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.BinOp)
            and text.segment(node.value.right) == loss
        ):
            return text.replace(node.value.right, f"{loss}.item()")
    return ""


def _without_softmax(text, facts, seen, entry):
    """The one softmax of the file becomes its argument; two or more are left to their author."""
    names = ("softmax", "sigmoid") if "sigmoid" not in entry.what else ("sigmoid",)
    calls = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr in (*names, "Softmax", "Sigmoid"))
            or (isinstance(node.func, ast.Name) and node.func.id in (*names, "Softmax", "Sigmoid"))
        )
    ]
    if len(calls) != 1:
        return ""
    node = calls[0]
    word = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
    if word[0].isupper():
        return text.replace(node, "nn.Identity()")
    if isinstance(node.func, ast.Attribute) and text.segment(node.func.value) not in (
        "F",
        "torch",
        "nn.functional",
        "torch.nn.functional",
    ):
        return text.replace(node, text.segment(node.func.value))  # logits.softmax(-1)
    return text.replace(node, text.segment(node.args[0])) if node.args else ""


def _rate(factor: float):
    def make(text, facts, seen, entry):
        node = _keyword(text, seen.built[1], "lr")
        if node is None or seen.built[0] != text.file:
            return ""
        better = factor
        if " times it" in entry.proof:
            better = float(entry.proof.split(" at ")[-1].split(" times it")[0])
        return text.replace(node, f"{node.value * better:.3g}")

    return make


def _keyword(text: Source, line: int, name: str) -> ast.Constant | None:
    for node in ast.walk(text.tree) if text.tree else ():
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
            for keyword in node.keywords:
                if (
                    keyword.arg == name
                    and isinstance(keyword.value, ast.Constant)
                    and isinstance(keyword.value.value, (int, float))
                ):
                    return keyword.value
    return None


def _other_norm(text, facts, seen, entry):
    """nn.BatchNorm1d(n) becomes nn.LayerNorm(n), nn.BatchNorm2d(n) nn.GroupNorm(1, n): one at a time."""
    current = text
    for _ in range(100):
        for node in ast.walk(current.tree):
            if isinstance(node, ast.Call) and node.args:
                word = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if word in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"):
                    width = current.segment(node.args[0])
                    new = f"nn.LayerNorm({width})" if word == "BatchNorm1d" else f"nn.GroupNorm(1, {width})"
                    current = Source(text.file, current.replace(node, new))
                    break
        else:
            break
    return current.text


def _same_shape(text, facts, seen, entry):
    """criterion(prediction, y) becomes criterion(prediction, y.unsqueeze(-1))."""
    loss = text.receiver(facts.loss_site[1], "backward")
    for node in ast.walk(text.tree) if text.tree else ():
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and text.segment(node.targets[0]) == loss
            and isinstance(node.value, ast.Call)
            and len(node.value.args) == 2
        ):
            target = node.value.args[1]
            return text.replace(target, f"{text.segment(target)}.unsqueeze(-1)")
    return ""


_MAKERS = {
    "gradients-not-cleared": _clear,
    "zero-grad-before-step": _move_zero,
    "step-before-backward": _move_step,
    "scheduler-before-optimizer": _move_schedule,
    "clip-after-step": _move_clip,
    "clip-of-scaled-gradients": _unscale,
    "accumulation-not-divided": _scaled_loss("/"),
    "accumulation-divided-twice": _scaled_loss("*"),
    "batchnorm-under-accumulation": _other_norm,
    "eval-mode-in-training": _train_mode,
    "train-mode-in-evaluation": _evaluation_mode,
    "graph-kept-alive": _numbers_only,
    "double-softmax": _without_softmax,
    "learning-rate-too-high": _rate(0.1),
    "learning-rate-too-low": _rate(10.0),
    "loss-broadcast": _same_shape,
}
