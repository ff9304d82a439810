"""Many models trained at once by torch.func get the gradients each would get alone; studies rely on it."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from heedful.models import RNN, Autoencoder, ConvNet, PlainNet, ResNet, UNet
from heedful.models.convnet import PADDINGS
from heedful.nn import BatchNorm, RelativeAttention

images, sequence = (2, 3, 32, 32), (2, 3, 9)
CASES = {
    **{f"net1 {padding}": (lambda p=padding: ConvNet.net1(p), images) for padding in PADDINGS},
    "rotation": (lambda: ConvNet.rotation(), images),
    "resnet": (lambda: ResNet(8, widths=[4, 8, 8]), images),
    "plain": (lambda: PlainNet(8, widths=[4, 8, 8], norm="none"), images),
    "unet": (lambda: UNet(3, 2, widths=[4, 8], norm="group"), images),
    "batch norm, formula": (lambda: BatchNorm(3, fused=False), images),
    "relative attention": (lambda: RelativeAttention(3, 3, 3, heads=2), sequence),
    "autoencoder": (lambda: Autoencoder(9, [4, 2], tied=True), sequence[1:]),
    "rnn": (lambda: RNN(inputs=9, outputs=2, hidden=5), sequence),
    "lstm": (lambda: RNN(inputs=9, outputs=2, hidden=5, kind="lstm"), sequence),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", CASES)
def test_stacked_as_alone(name, seed):
    make, shape = CASES[name]
    nets = [make().double() for _ in range(3)]
    parameters, buffers = stack_module_state(nets)
    x = torch.randn(shape, dtype=torch.float64)

    def loss(parameters, buffers, x):
        return functional_call(nets[0], (parameters, buffers), (x,)).square().sum()

    found = vmap(grad(loss), (0, 0, None))(parameters, buffers, x)
    for number, net in enumerate(nets):
        net(x).square().sum().backward()
        for key, parameter in net.named_parameters():
            torch.testing.assert_close(found[key][number], parameter.grad, rtol=1e-9, atol=1e-9)
        for key, buffer in net.named_buffers():  # running averages moved, each its own
            torch.testing.assert_close(buffers[key][number], buffer)
