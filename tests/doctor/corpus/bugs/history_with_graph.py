import torch
import torch.nn.functional as F

net = torch.nn.Linear(15, 5)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(200, 15), torch.randint(5, (200,))
history = []
for epoch in range(5):
    for part in torch.randperm(200).split(25):
        opt.zero_grad()
        loss = F.cross_entropy(net(x[part]), y[part])
        loss.backward()
        opt.step()
        history.append(loss)
