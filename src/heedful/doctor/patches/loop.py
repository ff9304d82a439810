"""Patches to the loop: what stands in the wrong order, is missing, or is held too long."""

from __future__ import annotations

import ast

from ..source import Source
from .edits import add_keyword, at, calls, keyword, model_call, model_of, nodes, operand, optimizer_name, word
from .signal import rate


def clear(text, facts, seen, entry):
    name = optimizer_name(text, seen)
    return text.insert_before(seen.backward_site[1], f"{name}.zero_grad()") if name else ""


def move_clearing(text, facts, seen, entry):
    if not seen.zero_site[1]:
        return ""  # cleared by hand, somewhere
    return text.move_before(seen.zero_site[1], seen.backward_site[1])


def move_step(text, facts, seen, entry):
    return text.move_after(seen.step_site[1], seen.backward_site[1])


def move_schedule(text, facts, seen, entry):
    """Behind the step; from the top of an epoch, behind the loop over batches."""
    line = seen.schedule_site[1]
    for block in nodes(text, ast.For):
        inner = [s for s in block.body if s.lineno <= seen.step_site[1] <= (s.end_lineno or 0)]
        if inner and any(s.lineno == line for s in block.body):
            return text.move_behind(line, inner[0])
    return ""


def move_clip(text, facts, seen, entry):
    return text.move_before(seen.clip_site[1], seen.step_site[1])


def unscale(text, facts, seen, entry):
    call = text.call(seen.step_site[1], "step")
    if call is None or not call.args:
        return ""
    scaler, optimizer = text.receiver(seen.step_site[1], "step"), text.segment(call.args[0])
    return text.insert_before(seen.clip_site[1], f"{scaler}.unscale_({optimizer})")


def scaled_loss(sign: str):
    """loss.backward() becomes (loss / k).backward()."""

    def make(text, facts, seen, entry):
        pieces = seen.usual_pieces
        found = [c for c in at(text, seen.backward_site[1]) if word(c) in ("backward", "manual_backward")]
        if not found:
            return ""
        loss = found[0].args[0] if word(found[0]) == "manual_backward" else found[0].func.value
        code = text.segment(loss)
        simple = isinstance(loss, (ast.Name, ast.Attribute, ast.Call))
        made = f"{code} {sign} {pieces}" if simple else f"({code}) {sign} {pieces}"
        if word(found[0]) == "manual_backward":
            return text.replace(loss, made)
        start = text.segment(found[0].func)  # with the parentheses around it, if any
        return text.replace(found[0].func, f"({made}){start[start.rindex('.') :]}")

    return make


def other_norm(text, facts, seen, entry):
    """nn.BatchNorm1d(n) becomes nn.LayerNorm(n), nn.BatchNorm2d(n) nn.GroupNorm(1, n): one at a time."""
    current = text
    for _ in range(100):
        norms = [c for c in calls(current, "BatchNorm1d", "BatchNorm2d", "BatchNorm3d") if c.args]
        if not norms:
            return current.text
        width = current.segment(norms[0].args[0])
        new = f"nn.LayerNorm({width})" if word(norms[0]) == "BatchNorm1d" else f"nn.GroupNorm(1, {width})"
        current = Source(text.file, current.replace(norms[0], new))
    return ""


def train_mode(text, facts, seen, entry):
    model = model_of(text, facts)
    return text.insert_before(model.site[1], f"{model.name}.train()") if model else ""


def evaluation_mode(text, facts, seen, entry):
    """eval() before the outermost `with` around the pass, train() behind it."""
    for model in facts.models.values():
        line = model.pass_site[1]
        blocks = at(text, line, ast.With) if model.pass_site[0] == text.file else []
        if blocks and model.pass_name:
            block = min(blocks, key=lambda node: node.lineno)
            after = Source(text.file, text.insert_after(block.lineno, f"{model.pass_name}.train()"))
            return after.insert_before(block.lineno, f"{model.pass_name}.eval()")
    return ""


def numbers_only(text, facts, seen, entry):
    """total += loss becomes total += loss.item(); a state is detached before it is used again."""
    call = text.call(seen.backward_site[1], "backward")
    loss = text.segment(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else ""
    for statement in nodes(text, ast.stmt):
        kept = None
        if isinstance(statement, (ast.Assign, ast.AugAssign)) and statement.lineno > seen.backward_site[1]:
            kept = statement.value
        elif isinstance(statement, ast.Expr) and word(statement.value) == "append" and statement.value.args:
            kept = statement.value.args[0]
        elif isinstance(statement, ast.AugAssign) and text.segment(statement.value) == loss:
            kept = statement.value
        held = {id(n.value) for n in ast.walk(kept) if isinstance(n, ast.Attribute)} if kept else set()
        names = [n for n in ast.walk(kept) if isinstance(n, ast.Name) and n.id == loss] if kept else []
        names = [n for n in names if id(n) not in held]
        if names:
            current = text
            for name in sorted(names, key=lambda n: (n.lineno, n.col_offset), reverse=True):
                current = Source(text.file, current.replace(name, f"{loss}.item()"))
            return current.text
    for block in nodes(text, (ast.For, ast.While)):
        for statement in (
            block.body if block.lineno <= seen.backward_site[1] <= (block.end_lineno or 0) else ()
        ):
            if not isinstance(statement, ast.Assign) or statement.lineno > seen.backward_site[1]:
                continue
            made = {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            used = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
            if len(made & used) == 1:
                (state,) = made & used
                return text.insert_before(statement.lineno, f"{state} = {state}.detach()")
    return ""


def same_shape(text, facts, seen, entry):
    """model(x), of shape (N, 1), becomes model(x).squeeze(-1)."""
    model = model_of(text, facts)
    call = model_call(text, model) if model else None
    return text.replace(call, f"{text.segment(call)}.squeeze(-1)") if call is not None else ""


def moved_axes(text, facts, seen, entry):
    """logits.view(-1, k) becomes logits.movedim(1, -1).reshape(-1, k); state.view(n, -1) is turned."""
    if "axis 1 holds the samples" in entry.what:
        made = [c for c in calls(text, "view", "reshape") if c.args and text.segment(c.args[-1]) == "-1"]
        if len(made) != 1:
            return ""
        given = ", ".join(text.segment(argument) for argument in made[0].args)
        return text.replace(
            made[0], f"{text.segment(operand(text, made[0]))}.transpose(0, 1).reshape({given})"
        )
    made = [c for c in calls(text, "view", "reshape") if len(c.args) == 2 and text.segment(c.args[0]) == "-1"]
    if len(made) != 1:
        return ""
    tensor = text.segment(operand(text, made[0]))
    move = "transpose(0, 1)" if "swapped" in entry.what else "movedim(1, -1)"
    return text.replace(made[0], f"{tensor}.{move}.reshape(-1, {text.segment(made[0].args[1])})")


def all_parameters(text, facts, seen, entry):
    """The first argument of the optimizer: what it was, and the parameters of the models left out."""
    built = [c for c in at(text, seen.built[1]) if c.args and word(c) == type(seen.optimizer).__name__]
    missing = {key for key, p in facts.reached.items() if key not in facts.slots and p.requires_grad}
    if not built or seen.built[0] != text.file:
        return ""
    if "(in no model)" in entry.where:
        return _registered(text)
    given, code, extra = built[0].args[0], text.segment(built[0].args[0]), []
    for model in facts.models.values():
        if model.name and model.parameters & missing:
            if word(given) == "parameters" and code.startswith(f"{model.name}."):
                new = text.replace(given, f"{model.name}.parameters()")
                # The layers may have come after the optimizer: then the line stands, and they are added.
                return new if new != text.text else _added_later(text, seen, model)
            extra.append(model.name)
    more = "".join(f', {{"params": {name}.parameters()}}' for name in extra)
    if not extra:
        return ""
    if isinstance(given, ast.List) and given.elts and isinstance(given.elts[0], ast.Dict):
        return text.replace(given, f"{code[:-1].rstrip().rstrip(',')}{more}]")
    lists = "".join(f", *{name}.parameters()" for name in extra)
    return text.replace(given, f"[*{code}{lists}]")


def _added_later(text, seen, model):
    """The optimizer moved behind the last change of the model that stands beside it."""
    statement = text.statement(seen.built[1])
    for block in [text.tree, *nodes(text, ast.FunctionDef)]:
        if statement in block.body:
            later = [
                s
                for s in block.body
                if s.lineno > statement.lineno
                and not isinstance(s, (ast.For, ast.While, ast.FunctionDef))
                and text.segment(s).startswith((f"{model.name}.", f"{model.name}["))
            ]
            return text.move_behind(statement.lineno, later[-1]) if later else ""
    return ""


def _registered(text):
    """self.layers = [nn.Linear(…), …] becomes an nn.ModuleList of them."""
    for statement in nodes(text, ast.Assign):
        plain = isinstance(statement.value, (ast.List, ast.ListComp)) and "nn." in text.segment(
            statement.value
        )
        if plain and text.segment(statement.targets[0]).startswith("self."):
            return text.replace(statement.value, f"nn.ModuleList({text.segment(statement.value)})")
    return ""


def no_rate_of_zero(text, facts, seen, entry):
    """{"params": p, "lr": 0.0} becomes {"params": p}."""
    for group in nodes(text, ast.Dict):
        pairs = list(zip(group.keys, group.values, strict=True))
        zero = [k for k, v in pairs if getattr(k, "value", "") == "lr" and getattr(v, "value", 1) == 0]
        if zero:
            kept = [
                f"{text.segment(k)}: {text.segment(v)}" for k, v in pairs if k not in zero and k is not None
            ]
            return text.replace(group, "{" + ", ".join(kept) + "}")
    return ""


def no_cut(text, facts, seen, entry):
    """The one cut of the file goes: h.detach(), tensor(h.item(), …) become h; a factor of zeros is drawn."""
    if "exactly zero" in entry.what:
        last = entry.where.partition(",")[0].rpartition(".")[2].split()[0]
        for statement in nodes(text, ast.Assign):
            zeros = [c for c in ast.walk(statement.value) if word(c) == "zeros"]
            if zeros and text.segment(statement.targets[0]).rpartition(".")[2] == last:
                inside = text.segment(zeros[0]).partition("(")[2]
                return text.replace(zeros[0], f"0.1 * torch.randn({inside}")
        return ""
    anew = [c for c in calls(text, "tensor") if keyword(c, "requires_grad") is not None and c.args]
    anew = [c for c in anew if word(c.args[0]) == "item"]
    if len(anew) == 1:
        loss, statement = text.segment(operand(text, anew[0].args[0])), text.statement(anew[0].lineno)
        named = isinstance(statement, ast.Assign) and text.segment(statement.targets[0]) == loss
        return text.without_line(statement.lineno) if named else text.replace(anew[0], loss)
    blocks = [w for w in _before(text, seen) if word(w.items[0].context_expr) == "no_grad"]
    onward = {id(n.value) for n in nodes(text, ast.Attribute)}  # h.detach().numpy() could not do without
    cuts = [c for c in calls(text, "detach") if id(c) not in onward]
    if len(cuts) == 1 and not blocks:
        return text.replace(cuts[0], text.segment(cuts[0].func.value))
    return text.without_block(blocks[0]) if len(blocks) == 1 and not cuts else ""


def _before(text, seen):
    """Blocks of a module, or in the loop before backward(): elsewhere a no_grad() is an evaluation's."""
    loops = [loop for kind in (ast.For, ast.While) for loop in at(text, seen.backward_site[1], kind)]
    places = [*nodes(text, ast.ClassDef), *sorted(loops, key=lambda loop: loop.lineno)[-1:]]
    inside = {id(node): node for place in places for node in ast.walk(place) if isinstance(node, ast.With)}
    return [w for w in inside.values() if w.lineno < seen.backward_site[1]]


def shuffled(text, facts, seen, entry):
    loaders = calls(text, "DataLoader")
    if len(loaders) > 1:
        named = [s.value for s in nodes(text, ast.Assign) if "train" in text.segment(s.targets[0]).lower()]
        loaders = [c for c in loaders if c in named]
    if len(loaders) != 1 or not facts.loaders:
        return ""
    told = keyword(loaders[0], "shuffle")
    return text.replace(told, "True") if told is not None else add_keyword(text, loaders[0], "shuffle=True")


def next_batch(text, facts, seen, entry):
    """next(iter(loader)) in a loop becomes next(batches), of a stream made once before it."""
    for call in calls(text, "next"):
        inner = call.args[0] if call.args else None
        loops = at(text, call.lineno, ast.For) + at(text, call.lineno, ast.While)
        if word(inner) == "iter" and inner.args and loops:
            loader, outer = text.segment(inner.args[0]), min(loops, key=lambda node: node.lineno)
            changed = Source(text.file, text.replace(inner, "batches"))
            line = f"batches = (batch for _ in iter(int, 1) for batch in {loader})  # without end"
            return changed.insert_before(outer.lineno, line)
    return ""


def clamped(text, facts, seen, entry):
    """torch.log(x) becomes torch.log(x.clamp_min(1e-8)), where it is the file's one logarithm or root."""
    if facts.bad_kind in ("weight", "size"):
        return rate(1e-3)(text, facts, seen, entry)
    sharp = calls(text, "log", "sqrt", "rsqrt")
    inside = operand(text, sharp[0]) if len(sharp) == 1 else None
    if inside is None or facts.bad_kind == "input":
        return ""
    code = text.segment(inside)
    simple = isinstance(inside, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return text.replace(inside, f"{code}.clamp_min(1e-8)" if simple else f"({code}).clamp_min(1e-8)")


MAKERS = {
    "gradients-not-cleared": clear,
    "zero-grad-before-step": move_clearing,
    "step-before-backward": move_step,
    "scheduler-before-optimizer": move_schedule,
    "clip-after-step": move_clip,
    "clip-of-scaled-gradients": unscale,
    "accumulation-not-divided": scaled_loss("/"),
    "accumulation-divided-twice": scaled_loss("*"),
    "batchnorm-under-accumulation": other_norm,
    "eval-mode-in-training": train_mode,
    "train-mode-in-evaluation": evaluation_mode,
    "graph-kept-alive": numbers_only,
    "loss-broadcast": same_shape,
    "view-mixes-axes": moved_axes,
    "parameters-missing-from-optimizer": all_parameters,
    "parameter-never-updated": no_rate_of_zero,
    "gradient-never-arrives": no_cut,
    "not-shuffled": shuffled,
    "same-batch-every-step": next_batch,
    "non-finite": clamped,
}
