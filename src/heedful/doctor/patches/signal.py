"""Patches to the signal and against leaks: rates, first weights, activations, masks, axes."""

from __future__ import annotations

import ast
import itertools

from torch import nn

from ..graph import PROBABILITIES
from .edits import add_keyword, at, before_optimizer, calls, keyword, model_of, nodes, operand, word

SKIP = """def skip(begin, end):  # what goes into `begin` is added to what comes out of `end`
    begin.register_forward_pre_hook(lambda module, inputs: setattr(end, "skipped", inputs[0]))
    end.register_forward_hook(lambda module, inputs, output: output + end.skipped)


for begin, end in {pairs}:
    skip({model}.get_submodule(begin), {model}.get_submodule(end))"""
INITIAL = """for module in {model}.modules():
    if isinstance(module, (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)):
        torch.nn.init.{rule}(module.weight)"""


def rate(factor: float):
    """lr=x becomes lr=x·factor, or what an experiment found better."""

    def make(text, facts, seen, entry):
        built = [c for c in at(text, seen.built[1]) if word(c) == type(seen.optimizer).__name__]
        if not built or seen.built[0] != text.file:
            return ""
        node = keyword(built[0], "lr") or (built[0].args[1] if len(built[0].args) > 1 else None)
        if not isinstance(node, ast.Constant) or not isinstance(node.value, (int, float)):
            return ""
        better = factor
        if " times it" in entry.proof:
            better = float(entry.proof.split(" at ")[-1].split(" times it")[0])
        elif entry.name == "update-too-large":
            better = 0.01 / entry.measured  # updates of a hundredth
        return text.replace(node, f"{node.value * better:.2g}")

    return make


def other_flow(text, facts, seen, entry):
    """First weights by He's rule, or skips around every two layers: whichever the twins said heals it."""
    model = model_of(text, facts)
    if model is None or "import torch\n" not in text.text:
        return ""
    if "(change the initial weights)" in entry.proof:
        bent = any(isinstance(m, (nn.Tanh, nn.Sigmoid)) for m in model.model.modules())
        made = INITIAL.format(model=model.name, rule="orthogonal_" if bent else "kaiming_normal_")
        return before_optimizer(text, seen, made)
    if "(change the activation)" in entry.proof:
        made = before_optimizer(text, seen, INITIAL.format(model=model.name, rule="kaiming_normal_"))
        for old in ("nn.Sigmoid()", "nn.Tanh()"):
            made = made.replace(old, "nn.ReLU()")
        return made
    if "(change skips)" in entry.proof and entry.subject:
        pairs = _in_short(entry.subject)
        return before_optimizer(text, seen, SKIP.format(model=model.name, pairs=pairs))
    return ""


def _in_short(pairs: list[tuple[str, str]]) -> str:
    """Names of layers at even distances as a range."""
    if all(name.isdigit() for pair in pairs for name in pair) and len(pairs) > 2:
        begins, lengths = [int(a) for a, _ in pairs], {int(b) - int(a) for a, b in pairs}
        steps = {b - a for a, b in itertools.pairwise(begins)}
        if len(lengths) == len(steps) == 1:
            (length,), (step,) = lengths, steps
            return f'[(f"{{k}}", f"{{k + {length}}}") for k in range({begins[0]}, {begins[-1] + 1}, {step})]'
    return repr(pairs)


def zero_biases(text, facts, seen, entry):
    """The one statement that sets a bias sets it to zero."""
    found = [
        node
        for node in nodes(text, ast.Expr)
        if word(node.value) in ("fill_", "uniform_", "constant_", "normal_") and ".bias" in text.segment(node)
    ]
    bias = operand(text, found[0].value) if len(found) == 1 else None
    return text.replace(found[0], f"torch.nn.init.zeros_({text.segment(bias)})") if bias is not None else ""


def calm_start(text, facts, seen, entry):
    """Small weights in the last layer; for squared errors a bias at the targets' mean."""
    model = model_of(text, facts)
    layers = [(n, m) for n, m in model.model.named_modules() if isinstance(m, nn.Linear)] if model else []
    batch = next(
        (b for b in facts.batches if b.objective is not None and b.objective.target is not None), None
    )
    if not layers or batch is None or "import torch\n" not in text.text:
        return ""
    last = f'{model.name}.get_submodule("{layers[-1][0]}")' if layers[-1][0] else model.name
    if batch.objective.kind == "classes":
        return before_optimizer(text, seen, f"torch.nn.init.normal_({last}.weight, std=0.01)")
    mean = float(batch.objective.target.double().mean())
    return before_optimizer(
        text, seen, f"torch.nn.init.constant_({last}.bias, {mean:.3g})  # the targets' mean"
    )


def without_softmax(text, facts, seen, entry):
    """The one softmax of the file becomes its argument, or log_softmax for nll_loss; several are left."""
    names = ["softmax"] if "sigmoid" not in entry.what else []
    names += ["sigmoid", "Sigmoid"] if PROBABILITIES not in entry.what else []
    found = calls(text, *names, "Softmax")
    if len(found) != 1:
        return ""
    if PROBABILITIES in entry.what:
        start, name = text.segment(found[0].func), word(found[0])
        better = "LogSoftmax" if name[0].isupper() else "log_softmax"
        return text.replace(found[0].func, start.removesuffix(name) + better)
    if word(found[0])[0].isupper():
        return text.replace(found[0], "nn.Identity()")
    inside = operand(text, found[0])
    return text.replace(found[0], text.segment(inside)) if inside is not None else ""


def divided_scores(text, facts, seen, entry):
    """softmax(scores) becomes softmax(scores · c), c such that first weights have half of the entropy."""
    found, width = calls(text, "softmax"), facts.widths.get(entry.where.partition(",")[0])
    inside = operand(text, found[0]) if len(found) == 1 and width else None
    if inside is None:
        return ""
    return text.replace(inside, f"(({text.segment(inside)}) / {width:.3g})")


def away_from_zero(text, facts, seen, entry):
    """What was set to zero of queries or keys is drawn small."""
    for statement in nodes(text, ast.Expr):
        code = text.segment(statement)
        if "key" not in code and "query" not in code:
            continue
        for call in [c for c in ast.walk(statement) if word(c) in ("zeros", "zeros_")]:
            inside = text.segment(call.args[0]) if word(call) == "zeros_" and call.args else ""
            if inside:
                return text.replace(call, f"nn.init.normal_({inside}, std=0.02)")
            return text.replace(call, f"0.1 * torch.randn({text.segment(call).partition('(')[2]}")
    return ""


def batch_first(text, facts, seen, entry):
    """batch_first=True for the one layer that lacks it; a softmax over the batch goes over the last axis."""
    layers = calls(text, "RNN", "LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer")
    lacking = [c for c in layers if keyword(c, "batch_first") is None]
    if len(lacking) == 1:
        return add_keyword(text, lacking[0], "batch_first=True")
    across = [keyword(c, "dim") for c in calls(text, "softmax", "log_softmax")]
    across = [d for d in across if isinstance(d, ast.Constant) and d.value == 0]
    return text.replace(across[0], "-1") if len(across) == 1 else ""


def masked(text, facts, seen, entry):
    """is_causal=True where attention has no mask; a triangle that is one too wide made narrower."""
    bare = [
        c
        for c in calls(text, "scaled_dot_product_attention")
        if keyword(c, "is_causal") is None and keyword(c, "attn_mask") is None and len(c.args) == 3
    ]
    if len(bare) == 1:
        return add_keyword(text, bare[0], "is_causal=True")
    for name, right in (("tril", 0), ("triu", 1)):
        for call in calls(text, name):
            own = isinstance(call.func, ast.Attribute) and text.segment(call.func.value) != "torch"
            places = call.args if own else call.args[1:]
            told = keyword(call, "diagonal") or (places[0] if places else None)
            if isinstance(told, ast.Constant) and told.value == right + 1:
                return text.replace(told, str(right))
    for call in calls(text, "LayerNorm"):
        if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)) and len(call.args[0].elts) == 2:
            return text.replace(call.args[0], text.segment(call.args[0].elts[1]))  # over features alone
    layers = calls(text, "TransformerEncoderLayer", "TransformerEncoder")
    parts = [f"self.{part}" for part in entry.where.split(".")]
    for function in nodes(text, ast.FunctionDef) if layers else ():
        for call in [c for c in ast.walk(function) if isinstance(c, ast.Call) and len(c.args) == 1]:
            if text.segment(call.func) in parts and len(function.args.args) > 1:
                length = f"{function.args.args[1].arg}.shape[1]"
                return add_keyword(text, call, f"nn.Transformer.generate_square_subsequent_mask({length})")
    return ""


MAKERS = {
    "learning-rate-too-high": rate(0.1),
    "learning-rate-too-low": rate(10.0),
    "update-too-large": rate(0.01),
    "vanishing-gradients": other_flow,
    "exploding-gradients": other_flow,
    "dead-units": zero_biases,
    "loss-at-init": calm_start,
    "double-softmax": without_softmax,
    "attention-saturated": divided_scores,
    "attention-uniform": away_from_zero,
    "batch-leak": batch_first,
    "causal-leak": masked,
}
