"""Attention: who listens to whom in text, pictures and graphs, by trained models and without one."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
import toys  # noqa: F401
from PIL import Image
from visiting import browser

from heedful import Graph, attend, data, lab
from heedful.models import GAT, GPT, ViT
from heedful.studio import looking
from heedful.studio.looking import graphs, pictures, uploads

DIGITS = {"classes": list("0123456789"), "channels": 1, "size": [8, 8], "mean": 0.5, "deviation": 0.25}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with a GPT, a ViT and a GAT that have learned nothing, and their numbers on the pages."""
    runs = tmp_path_factory.mktemp("kept") / "runs"
    torch.manual_seed(0)
    karate = data.load("karate")
    models = {
        "gpt": (GPT(4, layers=2, heads=2, dim=16, block=40), {"use": "text", "symbols": list(" abc")}),
        "vit": (ViT(8, 2, 1, 10, layers=2, heads=3, dim=24), {"use": "classes", **DIGITS}),
        "gat": (
            GAT(34, 4, 2, heads=3),
            {"use": "nodes", "dataset": "karate", "classes": list(karate.classes)},
        ),
    }
    numbers = {}
    for name, (model, notes) in models.items():
        # Any trial does: what counts is the model in its folder.
        trial = lab.run("toy-line", store=runs, backend="loop", seeds=1, settings={"tags": name}).trials[0]
        trial.folder.mkdir(parents=True, exist_ok=True)
        model.save(trial.folder / "model.safetensors", notes=notes)
        numbers[name] = (str(trial.id), model.eval())
    return runs, numbers


@pytest.fixture
def visitor(kept):
    with browser(kept[0]) as client:
        yield client


def seen(client, **given) -> tuple[dict, list[torch.Tensor]]:
    """What the page is told, and its weights, a layer each."""
    answer = client.get("/attention/look", params=given)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    raw = torch.frombuffer(bytearray(base64.b64decode(told["weights"])), dtype=torch.uint8).float() / 255
    n = len(told["tokens"])
    return told, [part.view(-1, n, n) for part in raw.split([heads * n * n for heads in told["heads"]])]


def close(ours, theirs) -> bool:
    return torch.allclose(ours, theirs, atol=0.5 / 255 + 1e-6)


def test_every_model_that_attends_is_offered(visitor, kept):
    page = visitor.get("/attention").text
    for name, kind in (("gpt", "text"), ("vit", "picture"), ("gat", "graph")):
        assert f'value="{kept[1][name][0]}" data-kind="{kind}"' in page
    (run, *_) = lab.Store(kept[0]).runs()
    assert f"/attention?who={kept[1]['gat'][0]}" in visitor.get(f"/runs/{run.id}").text


def test_a_gpt_attends_as_it_does_until_changed(visitor, kept):
    number, gpt = kept[1]["gpt"]
    given = {"who": number, "text": "abc cab"}
    told, own = seen(visitor, **given)
    codes = torch.tensor([" abc".index(letter) for letter in "abc cab"])
    with torch.inference_mode():
        assert close(torch.stack(own), gpt.attention_maps(codes))
    apart = torch.arange(7)[:, None] - torch.arange(7)
    _, near = seen(visitor, **given, neighbors="causal & window", window="1")
    assert all((layer[:, (apart < 0) | (apart > 1)] == 0).all() for layer in near)
    _, even = seen(visitor, **given, similarity="uniform")
    assert close(even[0][0, -1], torch.full((7,), 1 / 7))
    _, sharp = seen(visitor, **given, beta="20")
    assert sharp[0].max(-1).values.mean() > own[0].max(-1).values.mean()
    assert seen(visitor, **given)[0] == told, "the model is unharmed"


def test_a_vit_attends_to_pictures_built_in_and_sent(visitor, kept, seed):
    number, vit = kept[1]["vit"]
    told, own = seen(visitor, who=number, picture="digits", number="3")
    image = (data.load("digits").test.inputs[3] * (255 / 16)).round() / 255
    with torch.inference_mode():
        assert close(torch.stack(own), vit.attention_maps((image - 0.5) / 0.25))
    assert told["grid"] == [4, 4] and told["extra"] == 1 and told["tokens"][:2] == ["class", "1, 1"]
    pixels = torch.randint(256, (8, 8), dtype=torch.uint8)
    name = send(visitor, png(pixels)).json()["picture"]
    _, mine = seen(visitor, who=number, picture=name)
    with torch.inference_mode():
        assert close(torch.stack(mine), vit.attention_maps((pixels[None] / 255 - 0.5) / 0.25))
    _, near = seen(visitor, who=number, picture=name, neighbors="window", window="1")
    graph = pictures.near((4, 4), 1, 1)
    heard = torch.zeros(17, 17, dtype=torch.bool)
    heard[graph.target, graph.source] = True
    assert (near[0][:, ~heard] == 0).all() and heard[0].all() and heard[:, 0].all()


def test_a_gat_attends_to_its_graph(visitor, kept):
    number, gat = kept[1]["gat"]
    told, own = seen(visitor, who=number, most="40")
    karate = data.load("karate").row_normalized()
    x = Graph.from_dense(karate.features)
    assert told["heads"] == [3, 1] and len(told["tokens"]) == 34 and told["classes"] == list(karate.classes)
    order = [int(name) for name in told["tokens"]]
    for layer, alpha in zip(own, gat.attention(x, karate.graph), strict=True):
        dense = torch.zeros(len(alpha.weight), 34, 34)
        dense[:, alpha.target, alpha.source] = alpha.weight
        assert close(layer, dense[:, order][:, :, order])
    degree = 1 + karate.graph.in_degree()[order].float()
    _, even = seen(visitor, who=number, most="40", similarity="uniform")
    assert close(even[0].amax(-1), (1 / degree).expand(3, -1)), "β = 0 is the mean"
    _, sharp = seen(visitor, who=number, most="40", beta="30")
    assert sharp[0].amax(-1).mean() > own[0].amax(-1).mean()
    wide, far = seen(visitor, who=number, most="40", neighbors="window", window="2")
    assert (far[0] > 0).sum() > (own[0] > 0).sum() and "edges)" in wide["plan"]


def test_a_large_graph_is_pruned_around_a_node(visitor, kept):
    told, layers = seen(visitor, who=kept[1]["gat"][0], most="8", node="33")
    assert len(told["tokens"]) == 8 and told["tokens"][told["chosen"]] == "33"
    assert "8 of 34 nodes" in told["about"] and (layers[0].sum(-1) <= 1.02).all()


def test_words_are_sharpened_by_beta(studio):
    diagonals = [seen(studio, text="cat hat dog", beta=b)[1][0][0].diagonal() for b in ("0.1", "1", "10")]
    assert (diagonals[0] < diagonals[1]).all() and (diagonals[1] < diagonals[2]).all()


def test_a_long_text_is_pruned_to_what_is_heard(studio):
    words = "common " * 8 + " ".join(f"w{n:03d}q" for n in range(120))
    told, _ = seen(studio, text=words, most="16", beta="3")
    assert len(told["tokens"]) == 16 and "the 16 of 128 tokens" in told["about"]
    assert told["numbers"] == sorted(told["numbers"]) and told["numbers"][-1] == 128


def test_patches_and_nodes_need_no_model(studio):
    told, (weights,) = seen(studio, who="patches", across="4", neighbors="window", window="1")
    assert len(told["tokens"]) == 16 and told["kind"] == "picture" and weights[0, 0, 15] == 0
    assert torch.allclose(weights.sum(-1), torch.ones(1, 16), atol=9 * 0.5 / 255)  # nine bytes, each rounded
    told, (weights,) = seen(studio, who="nodes", graph="typed", edges="a b\nb > c\nd, d")
    assert told["tokens"] == ["a", "b", "c", "d"] and told["kind"] == "graph"
    heard = (weights[0] > 0).int().tolist()
    assert heard == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert seen(studio, who="nodes", graph="karate", neighbors="everyone")[1][0].min() > 0


def test_the_plan_is_that_of_explain(studio):
    given = {"text": "one two three", "neighbors": "causal & window", "window": "4", "length": "5000"}
    view = looking.View.read(given, "text")
    call = looking.look(view, None).call
    plan = studio.get("/attention/look", params=given).json()["plan"]
    assert plan == str(call.plan(5000)) and "5,000 long" in plan and "Window(4)" in plan
    x = torch.randn(1, 3, call.dim)
    assert attend(x, x, x, similarity=call.similarity, neighbors=call.neighbors).shape == x.shape


@pytest.mark.parametrize(
    "given, said",
    [
        ({"beta": "0"}, "beta"), ({"beta": "nan"}, "beta"), ({"window": "-1"}, "window"),
        ({"similarity": "__import__"}, "similarity"), ({"neighbors": "all"}, "neighbors"),
        ({"text": " "}, "text is empty"), ({"length": "9999999"}, "length"), ({"who": "999"}, "no model"),
        ({"who": "../x"}, "no model"), ({"text": "x" * 5000}, "4000 at most"), ({"most": "5000"}, "most"),
        ({"who": "patches", "picture": "/etc/passwd"}, "picture is"),
        ({"who": "patches", "picture": "sent-0000000000000000"}, "no more"),
        ({"who": "patches", "neighbors": "causal"}, "neighbors for a picture"),
        ({"who": "nodes", "graph": "../x"}, "graph is"), ({"who": "nodes", "node": "nobody"}, "no node"),
        ({"who": "nodes", "graph": "typed", "edges": "a"}, "line 1"),
        ({"who": "nodes", "graph": "typed", "edges": "\n".join(f"a {n}" for n in range(500))}, "400 at most"),
    ],
)  # fmt: skip
def test_wrong_views_are_told(studio, given, said):
    answer = studio.get("/attention/look", params=given)
    assert answer.status_code == 422 and said in answer.json()["problem"]


def test_what_a_gat_cannot_do_is_told(visitor, kept):
    for given, said in (
        ({"similarity": "elu"}, "a GAT takes"),
        ({"neighbors": "everyone"}, "a window of steps"),
    ):
        answer = visitor.get("/attention/look", params={"who": kept[1]["gat"][0], **given})
        assert answer.status_code == 422 and said in answer.json()["problem"]


def png(pixels: torch.Tensor, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, kind)
    return file.getvalue()


def send(client, content: bytes):
    return client.post("/attention/pictures", content=content)


def test_pictures_are_limited_in_size_and_kind(studio):
    small = torch.zeros(4, 4, dtype=torch.uint8)
    assert send(studio, png(small)).status_code == send(studio, png(small, "JPEG")).status_code == 200
    large = send(studio, b"\x89PNG" + b"x" * (uploads.LARGEST + 1))
    assert large.status_code == 413 and "4096 kB at most" in large.json()["problem"]
    half = png(torch.randint(256, (64, 64), dtype=torch.uint8))[:2000]
    for content in (b"", b"hello", b"<svg/>", png(small, "TIFF"), png(small, "GIF"), half):
        answer = send(studio, content)
        assert answer.status_code == 422 and "the picture" in answer.json()["problem"]


def test_a_picture_that_unpacks_to_too_much_is_not_unpacked(studio):
    file = io.BytesIO()
    Image.fromarray(np.zeros((6000, 6000), dtype=np.uint8)).save(file, "PNG")
    assert len(file.getvalue()) < uploads.LARGEST
    answer = send(studio, file.getvalue())
    assert answer.status_code == 422 and "16,000,000 at most" in answer.json()["problem"]


def test_pictures_are_few_and_small():
    kept, first = uploads.Uploads(), None
    for n in range(uploads.KEPT + 1):
        name = kept.take(png(torch.full((4, 1000), n, dtype=torch.uint8)))
        first = first or name
        assert kept.find(name).shape == (1, 2, uploads.SIDE)
    with pytest.raises(ValueError, match="choose it again"):
        kept.find(first)


def test_steps_reach_what_walks_reach(seed):
    graph = Graph.from_dense(torch.rand(12, 12) < 0.15)
    near = torch.eye(12, dtype=torch.bool)
    once = torch.zeros(12, 12, dtype=torch.bool)
    once[graph.target, graph.source] = True
    for steps in range(4):
        found = torch.zeros(12, 12, dtype=torch.bool)
        reached = graphs.reach(graph, steps)
        found[reached.target, reached.source] = True
        assert torch.equal(found, near)
        near = near | (near.float() @ once.float() > 0)
