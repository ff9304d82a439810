"""Every layer and model keeps the same promises, because it is public, not because someone remembered."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch
from torch import nn

import heedful.models
import heedful.nn

FOLDER = Path(__file__).parent


def _examples():
    found = []
    for module in pkgutil.iter_modules([str(FOLDER)]):
        if module.name.startswith("examples_"):
            found += importlib.import_module(f".{module.name}", __package__).EXAMPLES
    return found


EXAMPLES = _examples()
every = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def those(claim):
    """The examples that make a claim; the others are not asked."""
    return pytest.mark.parametrize("example", [example for example in EXAMPLES if claim(example)], ids=str)


def first(output):
    return output[0] if isinstance(output, tuple) else output


def run(module, inputs):
    return first(module(*inputs))


def test_everyone_has_an_example():
    public = {
        name
        for room in (heedful.nn, heedful.models)
        for name in room.__all__
        if isinstance(getattr(room, name), type) and issubclass(getattr(room, name), nn.Module)
    } - {"Model"}
    covered = {name for example in EXAMPLES for name in (example.covers or [type(example.make()).__name__])}
    assert public <= covered, f"no example in tests/contract for {', '.join(sorted(public - covered))}"


def test_names_are_different():
    names = [example.name for example in EXAMPLES]
    assert len(names) == len(set(names))


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_shape_and_dtype(example, dtype, seed):
    with torch.no_grad():
        output = run(example.make(dtype, seed).eval(), example.call(dtype, seed))
    assert tuple(output.shape) == example.shape
    assert output.dtype == dtype
    assert output.isfinite().all()


@every
def test_the_same_seed_gives_the_same(example, seed):
    one, two = example.make(seed=seed), example.make(seed=seed)
    for (name, a), (_, b) in zip(one.state_dict().items(), two.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    inputs = example.call(seed=seed)
    torch.manual_seed(seed)
    a = run(one.train(), inputs)
    torch.manual_seed(seed)
    b = run(two.train(), inputs)
    assert torch.equal(a, b)


@every
def test_evaluating_draws_nothing(example, seed):
    module, inputs = example.make(seed=seed).eval(), example.call(seed=seed)
    with torch.no_grad():
        before = torch.get_rng_state()
        output = run(module, inputs)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(run(module, inputs), output)


@those(lambda example: any(True for _ in example.make().parameters()))
def test_gradient_reaches_every_parameter(example, seed):
    module = example.make(torch.float64, seed).train()
    output = run(module, example.call(torch.float64, seed))
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in module.named_parameters():
        if name in example.unreached:
            continue
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, f"{name} gets a gradient of zero"


@every
def test_state_moves_to_a_twin(example, seed):
    module, twin = example.make(seed=seed).eval(), example.make(seed=seed + 1).eval()
    assert list(module.state_dict()) == list(twin.state_dict())
    twin.load_state_dict(module.state_dict())
    inputs = example.call(seed=seed)
    with torch.no_grad():
        assert torch.equal(run(module, inputs), run(twin, inputs))
        assert torch.equal(run(copy.deepcopy(module), inputs), run(module, inputs))


@every
def test_everything_moves_between_devices(example, seed):
    """On the meta device every tensor a module holds must have moved, caches included."""
    module = example.make(seed=seed).eval()
    inputs = example.call(seed=seed)
    with torch.no_grad():
        before = run(module, inputs)
        away = copy.deepcopy(module).to("meta")
        assert all(tensor.is_meta for tensor in [*away.parameters(), *away.buffers()])
        assert torch.equal(run(module.to("cpu").to(torch.float64).to(torch.float32), inputs), before)


@those(lambda example: example.batch)
def test_things_of_a_batch_do_not_meet(example, seed):
    module, inputs = example.make(torch.float64, seed).eval(), example.call(torch.float64, seed)
    with torch.no_grad():
        whole = run(module, inputs)
        alone = run(module, (inputs[0][:1], *inputs[1:]))
    torch.testing.assert_close(whole[:1], alone, rtol=1e-10, atol=1e-10)


@those(lambda example: example.causal)
def test_the_future_is_not_heard(example, seed):
    module, inputs = example.make(torch.float64, seed).eval(), example.call(torch.float64, seed)
    x = inputs[0]
    for t in range(1, x.shape[1]):
        other = x.clone()
        other[:, t:] = other[:, t:].flip(1) + (1 if x.is_floating_point() else 0)
        if not x.is_floating_point():
            other[:, t:] = (x[:, t:] + 1) % int(x.max() + 1)
        with torch.no_grad():
            a, b = run(module, inputs), run(module, (other, *inputs[1:]))
        torch.testing.assert_close(a[:, :t], b[:, :t], rtol=1e-10, atol=1e-10)
        assert not torch.allclose(a[:, t:], b[:, t:])


@those(lambda example: example.equivariant is not None)
def test_relabelling_relabels(example, seed):
    module, inputs = example.make(torch.float64, seed).eval(), example.call(torch.float64, seed)
    permutation = torch.randperm(len(inputs[0]))
    with torch.no_grad():
        a = run(module, inputs)
        b = run(module, example.equivariant(inputs, permutation))
    torch.testing.assert_close(b, a[permutation], rtol=1e-10, atol=1e-10)


@those(lambda example: example.compiles)
def test_compiles_whole(example, seed):
    module, inputs = example.make(seed=seed).eval(), example.call(seed=seed)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", **example.compile_kwargs)
    torch.testing.assert_close(run(compiled, inputs), run(module, inputs), rtol=1e-4, atol=1e-5)


def one_of_each_model():
    found = {}
    for example in EXAMPLES:
        if example.compiles and isinstance(model := example.make(), heedful.models.Model):
            found.setdefault(type(model), example)
    return pytest.mark.parametrize("example", found.values(), ids=str)


@one_of_each_model()
def test_compiles_where_every_number_is_a_variable(example, seed):
    module, inputs = example.make(seed=seed).eval(), example.call(seed=seed)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="eager")
    torch.testing.assert_close(run(compiled, inputs), run(module, inputs), rtol=1e-4, atol=1e-5)


@those(lambda example: isinstance(example.make(), heedful.models.Model))
def test_saves_and_loads(example, seed, tmp_path):
    module = example.make(seed=seed).eval()
    file = tmp_path / "model.safetensors"
    module.save(file)
    again = type(module).load(file).eval()
    assert again.config == heedful.models.load(file).config
    inputs = example.call(seed=seed)
    with torch.no_grad():
        assert torch.equal(run(again, inputs), run(module, inputs))
    half = module.to(torch.bfloat16)
    half.save(file)
    assert {value.dtype for value in type(half).load(file).parameters()} == {torch.bfloat16}
