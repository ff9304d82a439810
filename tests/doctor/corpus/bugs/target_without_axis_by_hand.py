import torch

lin = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(lin.parameters(), lr=0.1)
x = torch.rand(150, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5])
for epoch in range(6):
    for part in torch.randperm(150).split(30):
        opt.zero_grad()
        loss = ((lin(x[part]) - y[part]) ** 2).mean()
        loss.backward()
        opt.step()
