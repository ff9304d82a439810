"""Compile the kernels that calls would launch on an H200, here: python compiled_without_a_gpu.py

Triton compiles for a GPU that is not there, and refuses what its interpreter lets pass: wrong types, mostly.
Prints, as JSON, for each kernel how often it was compiled and the most shared memory it needs.
"""

import contextlib
import json

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    Global,
    Graph,
    Polynomial,
    RandomFeatures,
    Relative,
    Segments,
    Softmax,
    Window,
    attend,
    step,
)
from heedful.kernels import sparse_operators, sparse_triton

H200 = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int32: "*i32",
    torch.int64: "*i64", torch.bool: "*i1", bool: "i1", int: "i32", float: "fp32",
}  # fmt: skip
found: dict[str, dict[str, int]] = {}
compiled = set()


def compile_instead(kernel, *args, grid, warmup, **options):
    given = dict(zip(kernel.arg_names, args, strict=False))
    given.update({name: options.pop(name) for name in list(options) if name in kernel.arg_names})
    signature, constants = {}, {}
    for parameter in kernel.params:
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            signature[parameter.name] = TYPES[value.dtype if isinstance(value, torch.Tensor) else type(value)]
    key = kernel.__name__, str(signature), str(constants), str(options)
    if key in compiled:
        return
    compiled.add(key)
    made = triton.compile(ASTSource(kernel, signature, constants), target=H200, options=options)
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"
    entry = found.setdefault(name, {"times": 0, "shared": 0})
    entry["times"] += 1
    entry["shared"] = max(entry["shared"], made.metadata.shared)


def train(shapes, dtype=torch.float32, **options):
    tensors = [torch.ones(2, *shape, dtype=dtype, requires_grad=True) for shape in shapes]
    attend(*tensors, **options).sum().backward()


if __name__ == "__main__":
    triton.runtime.JITFunction.run = compile_instead
    sparse_operators.on_gpu = lambda device: True
    sparse_triton.on = lambda device: contextlib.nullcontext()
    usual, half = [(256, 64)] * 3, torch.bfloat16
    train(usual, half, similarity=EluKernel(), neighbors=Causal(), position=Alibi(), strategy="scan")
    train(usual, half, similarity=RandomFeatures(256), strategy="factored")
    train([(256, 20)] * 3, similarity=Polynomial(2), neighbors=Causal(), strategy="scan")
    train(usual, half, similarity=Polynomial(2), strategy="factored")
    with torch.no_grad():
        token, state = torch.ones(2, 1, 64), None
        for _ in range(2):
            _, state = step(token, token, token, state, similarity=RandomFeatures(64), neighbors=Causal())
    relative = Relative(torch.zeros(511, requires_grad=True))
    train(usual, position=relative, neighbors=Window(90), strategy="tiled")
    train([(256, 128)] * 3, similarity=Polynomial(2), neighbors=Window(9) | Global([0]), strategy="tiled")
    train([(256, 1), (256, 1), (256, 20)], half, similarity=Additive(), dropout=0.1, strategy="tiled")
    train(usual, half, neighbors=Segments([100, 156]), position=relative, strategy="tiled")
    graph = Graph.from_edges(*torch.randint(100, (2, 1000)), nodes=100)
    train([(100, 1), (100, 1), (100, 8)], similarity=Additive(), neighbors=graph, strategy="sparse")
    train([(100, 16)] * 3, half, similarity=Softmax(), neighbors=graph, strategy="sparse")
    print(json.dumps(found))
