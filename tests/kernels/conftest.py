"""Where the kernels of the GPU are tested."""

import pytest
import torch


@pytest.fixture(params=["interpreted", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """A GPU; without one Triton's interpreter, which ../conftest.py turned on and which takes CPU tensors."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        return "cuda"
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled here")
    return "cpu"
