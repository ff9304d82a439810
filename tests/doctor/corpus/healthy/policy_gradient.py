import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(30):
    state = torch.randn(20, 4)
    choice = torch.distributions.Categorical(logits=policy(state))
    action = choice.sample()
    reward = (action == (state[:, 0] > 0).long()).float()
    loss = -(choice.log_prob(action) * (reward - reward.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
