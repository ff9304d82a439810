"""Finding one's way in somebody's code: calls of a name, the model's and the optimizer's own names."""

from __future__ import annotations

import ast

from ..facts import Calls, Facts, Seen
from ..source import Source

MODULES = ("F", "torch", "nn", "nn.functional", "torch.nn.functional", "torch.nn", "torch.nn.init", "nn.init")


def word(node: ast.AST) -> str:
    """`step` of `optimizer.step(...)`, `softmax` of `softmax(...)`."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def nodes(text: Source, kind: type) -> list:
    return [node for node in ast.walk(text.tree) if isinstance(node, kind)] if text.tree else []


def calls(text: Source, *words: str) -> list[ast.Call]:
    return [node for node in nodes(text, ast.Call) if word(node) in words]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((entry.value for entry in call.keywords if entry.arg == name), None)


def operand(text: Source, call: ast.Call) -> ast.expr | None:
    """x of both `torch.log(x)` and `x.log()`."""
    if isinstance(call.func, ast.Attribute) and text.segment(call.func.value) not in MODULES:
        return call.func.value
    return call.args[0] if call.args else None


def at(text: Source, line: int, kind: type = ast.Call) -> list:
    """Nodes of a kind that cover a line."""
    return [node for node in nodes(text, kind) if node.lineno <= line <= (node.end_lineno or node.lineno)]


def add_keyword(text: Source, call: ast.Call, code: str) -> str:
    inside = text.segment(call)
    return text.replace(call, f"{inside[:-1].rstrip().rstrip(',')}, {code})")


def optimizer_name(text: Source, seen: Seen) -> str:
    if seen.name:
        return seen.name
    call = text.call(seen.step_site[1], "step") if seen.step_site[0] == text.file else None
    if call is None or not isinstance(call.func, ast.Attribute):
        return ""
    if call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)):
        return text.segment(call.args[0])  # scaler.step(optimizer)
    return text.segment(call.func.value)


def model_of(text: Source, facts: Facts) -> Calls | None:
    """The model that is trained from this file, with a name to call it by."""
    return next(
        (c for c in facts.models.values() if c.site[0] == text.file and c.name and c.training_steps), None
    )


def model_call(text: Source, model: Calls) -> ast.Call | None:
    """`model(x)` on the line of the training's forward pass."""
    for node in at(text, model.site[1]):
        if text.segment(node.func) == model.name:
            return node
    return None


def before_optimizer(text: Source, seen: Seen, code: str) -> str:
    """Lines put before the optimizer is built, at its depth."""
    if seen.built[0] != text.file:
        return ""
    statement = text.statement(seen.built[1])
    if statement is None:
        return ""
    indent = text.indent(statement.lineno)
    return text.insert_before(seen.built[1], code.replace("\n", "\n" + indent))
