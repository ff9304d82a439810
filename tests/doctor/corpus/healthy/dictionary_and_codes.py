"""Sparse coding: codes and dictionary take turns, an optimizer each."""

import torch

atoms = torch.nn.functional.normalize(torch.randn(12, 20), dim=1)
codes = torch.randn(200, 12) * (torch.rand(200, 12) < 0.2)
signals = codes @ atoms + 0.01 * torch.randn(200, 20)

dictionary = torch.randn(12, 20).div(20**0.5).requires_grad_()
guess = torch.zeros(200, 12).add(0.01 * torch.randn(200, 12)).requires_grad_()
of_codes = torch.optim.Adam([guess], lr=0.05)
of_dictionary = torch.optim.Adam([dictionary], lr=0.01)


def energy():
    return (guess @ dictionary - signals).square().sum(1).mean() + 0.05 * guess.abs().sum(1).mean()


for turn in range(60):
    optimizer = of_codes if turn % 2 == 0 else of_dictionary
    of_codes.zero_grad()
    of_dictionary.zero_grad()
    energy().backward()
    optimizer.step()
    with torch.no_grad():
        dictionary /= dictionary.norm(dim=1, keepdim=True).clamp(min=1.0)
