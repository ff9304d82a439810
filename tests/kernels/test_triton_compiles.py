"""What the GPU would be given compiles, without one: the interpreter takes what the compiler does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SHARED = 227 * 1024  # bytes a block of an H200 has
KERNELS = {
    "dividing_triton": ("divide",),
    "feature_maps_triton": ("moments", "carry", "apply", "pull", "step"),
    "lengths_triton": ("longest", "inverses"),
    "quadratic_triton": ("moments", "apply", "pull"),
    "sparse_additive_triton": ("forward", "listeners", "speakers"),
    "sparse_general_triton": ("forward", "listeners", "row_gradients", "column_gradients"),
    "tiles_triton": ("forward", "listeners", "speakers", "offsets"),
}


def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path):
    script = Path(__file__).with_name("compiled_without_a_gpu.py")
    known = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    known["TRITON_CACHE_DIR"] = str(tmp_path)  # else they might have been compiled before
    done = subprocess.run([sys.executable, str(script)], env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {f"{module}.{name}" for module, names in KERNELS.items() for name in names}
    assert all(entry["times"] > 0 and entry["shared"] <= SHARED for entry in found.values())
