import torch
from torch import nn

encoder, decoder = nn.Linear(12, 4), nn.Linear(4, 12)
first = torch.optim.SGD(encoder.parameters(), lr=0.02)
second = torch.optim.SGD(decoder.parameters(), lr=0.02)
data = torch.randn(300, 3) @ torch.randn(3, 12)
for _ in range(40):
    batch = data[torch.randperm(300)[:64]]
    second.zero_grad()
    loss = nn.functional.mse_loss(decoder(torch.relu(encoder(batch))), batch)
    loss.backward()
    first.step()
    second.step()
