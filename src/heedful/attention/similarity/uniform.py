"""1: the mean."""

from __future__ import annotations

from .base import Similarity


class Uniform(Similarity):
    """sim = 1: the mean over the neighbours (weighted by exp(position) or by the graph's edge weights).

    >>> import torch, heedful
    >>> x = torch.arange(4.0).view(4, 1)
    >>> heedful.attend(x, x, x, similarity=heedful.Uniform(), neighbors=heedful.Causal()).flatten()
    tensor([0.0000, 0.5000, 1.0000, 1.5000])
    """

    kind = "uniform"

    def __init__(self):
        super().__init__()

    def check(self, query_dim, key_dim, heads):
        pass

    def feature_count(self, dim):
        return 1

    def prepare(self, query, key):
        return query.detach(), key.detach()  # their number is all that counts

    def scores(self, query, key):
        return query.new_zeros(1, 1).expand(query.shape[:-1] + (key.shape[-2],))

    def pairs(self, query, key):
        return query.new_zeros(1).expand(query.shape[:-1])

    def query_features(self, query):
        return query.new_ones(1, 1).expand(query.shape[:-1] + (1,))

    key_features = query_features
