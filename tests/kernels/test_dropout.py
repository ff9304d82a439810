"""The dropout hash: the same bits in torch and Numba, and as good as random."""

import numpy as np
import pytest
import torch

from heedful.kernels.dropout import keep_mask, threshold


def by_numba(seeds, heads, counters, rate):
    from heedful.kernels import sparse_numba

    out = np.empty((len(counters), heads), np.bool_)
    sparse_numba.keep_bits(seeds.numpy(), heads, counters.numpy(), np.uint64(threshold(rate)), out)
    return torch.from_numpy(out)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.1, 0.5, 0.6, 0.999, 1.0])
def test_torch_and_numba_agree_bit_for_bit(rate):
    counters = torch.cat([torch.arange(2000), torch.randint(0, 2**62, (2000,))])
    for seed in (0, 1, -1, 2**63 - 1, -(2**63), 123456789):
        seeds = torch.tensor([seed])
        torch_says = keep_mask(seeds, torch.arange(5), counters[:, None], rate)
        assert torch.equal(torch_says, by_numba(seeds, 5, counters, rate))


def test_several_seeds_share_out_the_heads():
    seeds, counters = torch.tensor([11, 12]), torch.arange(500)
    both = by_numba(seeds, 6, counters, 0.5)
    assert torch.equal(both[:, :3], by_numba(seeds[:1], 3, counters, 0.5))
    assert torch.equal(both[:, 3:], by_numba(seeds[1:], 3, counters, 0.5))


def test_matches_splitmix64_written_out():
    """With Python's own integers, so that neither wraparound nor a signed shift can be wrong in both."""
    word = 2**64 - 1

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & word
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & word
        return x ^ (x >> 31)

    for seed, head, counter in [(0, 0, 0), (-5, 3, 17), (2**62, 7, 2**61 + 1)]:
        key = mix((mix(seed & word) + (head + 1) * 0x9E3779B97F4A7C15) & word)
        unit = (mix((key + counter * 0x9E3779B97F4A7C15) & word) >> 11) / 2**53
        for rate in (unit, np.nextafter(unit, 1), np.nextafter(unit, 0)):
            says = keep_mask(torch.tensor([seed]), head, torch.tensor([counter]), float(rate))
            assert says.item() == (unit >= rate)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5, 0.9])
def test_as_good_as_random(rate):
    n = 200_000
    kept = [keep_mask(torch.tensor([seed]), head, torch.arange(n), rate).double()
            for seed in (0, 1, 2) for head in (0, 1, 2)]  # fmt: skip
    kept += [keep_mask(torch.tensor([3]), 0, torch.arange(n) * 20_011, rate).double()]
    spread = (rate * (1 - rate) / n) ** 0.5
    for x in kept:
        assert abs(x.mean() - (1 - rate)) < 5 * spread
        runs = x.view(-1, 100).mean(1)  # also evenly spread along the counter
        assert abs(runs.var() / (rate * (1 - rate) / 100) - 1) < 5 * (2 / len(runs)) ** 0.5
    together = torch.corrcoef(torch.stack([*kept, kept[0].roll(1), kept[0].roll(20_000)]))
    assert (together - torch.eye(len(together))).abs().max() < 5 / n**0.5


def test_under_compile_and_vmap():
    seeds, counters = torch.tensor([4, 5, -6]), torch.arange(1000)
    plain = torch.stack([keep_mask(seed[None], 2, counters, 0.4) for seed in seeds])
    assert torch.equal(torch.vmap(lambda seed: keep_mask(seed[None], 2, counters, 0.4))(seeds), plain)
    compiled = torch.compile(keep_mask, fullgraph=True)
    assert torch.equal(compiled(seeds[:1], 2, counters, 0.4), plain[0])


def test_importing_loads_no_numba():
    import subprocess
    import sys

    code = "import sys, heedful.kernels.dropout, heedful.kernels.sparse; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
