"""What the dataclasses do beyond holding tensors."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from heedful import data


def test_examples_go_into_a_loader(seed):
    part = data.Examples(torch.arange(10).unsqueeze(1), torch.arange(10))
    batches = list(DataLoader(part, batch_size=4))
    assert [len(inputs) for inputs, _ in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([labels for _, labels in batches]), torch.arange(10))
    assert repr(part.take(slice(3))) == "Examples(3 × 1 int64)"
    assert part.take([5, 2]).labels.tolist() == [5, 2]
    assert part.to("meta").inputs.device.type == "meta"
    with pytest.raises(ValueError, match="3 inputs and 2 labels"):
        data.Examples(torch.zeros(3), torch.zeros(2))


def test_hold_out(seed):
    whole = data.load("digits")
    found = whole.hold_out(200)
    assert len(found.train) == 1237 and torch.equal(found.val.inputs, whole.train.inputs[-200:])
    shuffled = whole.hold_out(200, seed=seed)
    joined = torch.cat([shuffled.train.inputs, shuffled.val.inputs]).flatten(1)
    assert not torch.equal(shuffled.val.inputs, found.val.inputs)
    assert sorted(joined.sum(1).tolist()) == sorted(whole.train.inputs.flatten(1).sum(1).tolist())
    assert torch.equal(whole.hold_out(200, seed=seed).val.inputs, shuffled.val.inputs)
    for count in (0, 1437, -1):
        with pytest.raises(ValueError, match=f"count={count} must be between 1 and 1436"):
            whole.hold_out(count)
    with pytest.raises(ValueError, match="has a val part already"):
        found.hold_out(10)


def test_scaled():
    found = data.load("digits")
    scaled = found.scaled()
    assert scaled.peak == 1 and scaled.train.inputs.dtype == torch.float32
    assert torch.equal((scaled.test.inputs * 16).byte(), found.test.inputs)
    assert scaled.scaled() is scaled and scaled.val is None
    boxes = data.boxes(train=2, val=2, test=2).scaled()
    assert boxes.val.inputs.unique().tolist() == [0, 1]


def test_moved():
    for name in ("digits", "karate"):
        moved = data.load(name).to("meta")
        assert {tensor.device.type for tensor in tensors(moved)} == {"meta"}
    assert data.membranes(count=2, size=32).to("meta").masks.device.type == "meta"


def tensors(found):
    if hasattr(found, "graph"):
        return [found.graph.rowptr, found.features, found.labels, found.train]
    return [tensor for part in found.parts.values() for tensor in (part.inputs, part.labels)]


def test_text_by_number(seed):
    text = data.TextData("poem", "hear, hear: a 🜁 is 'air'")
    assert text.decode(text.codes) == text.text and text.vocabulary == tuple(sorted(set(text.text)))
    shuffled = [text.vocabulary[i] for i in torch.randperm(len(text.vocabulary))]
    other = data.TextData("poem", text.text, tuple(shuffled))
    assert other.decode(other.codes) == text.text  # a vocabulary in any order
    assert [shuffled[code] for code in other.codes] == list(text.text)
    assert text.encode("").tolist() == [] and text.decode([]) == ""


def test_unknown_symbols_are_named():
    text = data.TextData("poem", "abc")
    with pytest.raises(ValueError, match=r"2 symbols are not among the 3 of poem: '!' 'z'. Leave them out"):
        text.encode("az!z")
    assert text.encode("az!zb", unknown="skip").tolist() == [0, 1]
    assert text.encode("z", unknown="skip").tolist() == []
    with pytest.raises(ValueError, match="unknown='drop' must be 'error' or 'skip'"):
        text.encode("a", unknown="drop")


def test_split_shares_the_vocabulary():
    text = data.TextData("poem", "aaaaaaaaab")
    first, rest = text.split(0.9)
    assert (first.text, rest.text) == ("aaaaaaaaa", "b") and first.vocabulary == rest.vocabulary == ("a", "b")
    assert rest.codes.tolist() == [1]
    for share in (0, 1, 1.5):
        with pytest.raises(ValueError, match="must be between 0 and 1"):
            text.split(share)
