"""An actor, two critics, targets that follow slowly and a temperature that is learned."""

import copy

import torch
from torch import nn


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, o))


actor = mlp(3, 2)
critics = nn.ModuleList([mlp(4, 1), mlp(4, 1)])
targets = copy.deepcopy(critics).requires_grad_(False)
log_alpha = torch.zeros((), requires_grad=True)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3)
alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)


def act(s):
    mean, log_std = actor(s).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-4, 1).exp())
    u = normal.rsample()
    a = u.tanh()
    return a, (normal.log_prob(u) - (1 - a**2 + 1e-6).log()).sum(-1, keepdim=True)


def q(which, s, a):
    return [critic(torch.cat([s, a], -1)) for critic in which]


for step in range(80):
    s = torch.randn(64, 3)
    a = 2 * torch.rand(64, 1) - 1
    reward = -(a - s[:, :1].tanh()).abs()
    after = s + 0.1 * torch.randn_like(s)
    with torch.no_grad():
        b, log_p = act(after)
        y = reward + 0.9 * (torch.min(*q(targets, after, b)) - log_alpha.exp() * log_p)
    critic_loss = sum(nn.functional.mse_loss(value, y) for value in q(critics, s, a))
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    a, log_p = act(s)
    actor_loss = (log_alpha.exp().detach() * log_p - torch.min(*q(critics, s, a))).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = -(log_alpha * (log_p.detach() - 1)).mean()
    alpha_optimizer.zero_grad()
    alpha_loss.backward()
    alpha_optimizer.step()
    with torch.no_grad():
        for p, t in zip(critics.parameters(), targets.parameters()):
            t.lerp_(p, 0.02)
