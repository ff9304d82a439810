"""Generate and Attention: what a trained model writes, and whom its tokens listen to."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
import torch
from visiting import browser, text

from heedful import attend, lab
from heedful.studio import looking, writing

SMALL = {"steps": 4, "every": 4, "size": "nano"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with a language model that has hardly learned, and its number on the pages."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    result = lab.run("fairytales", profile="quick", seeds=1, settings=SMALL, store=runs, backend="loop")
    assert not result.failures
    return runs, str(result.trials[0].id)


@pytest.fixture
def visitor(trained):
    with browser(trained[0]) as client:
        yield client


def stream(client, **given) -> list[tuple[str, object]]:
    """(kind, data) of every event."""
    blocks = client.get("/generate/events", params=given).text.strip().split("\n\n")
    found = []
    for block in blocks:
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


def test_tokens_stream_as_the_model_draws_them(visitor, trained, seed):
    given = {"model": trained[1], "prompt": "the ", "length": "12", "temperature": "0.7", "seed": str(seed)}
    *records, (kind, last), over = stream(visitor, **given)
    assert over == ("over", {}) and kind == "message" and last["book"] == "python-docs"
    found = lab.kept("latest", store=str(trained[0]), use="text")
    tokens = writing.data.tokens_of(found.notes)
    row = tokens.encode("the ").tolist()
    expected = found.model.generate(row, 12, temperature=0.7, seed=seed).tolist()[len(row) :]
    assert "".join(record["text"] for _, record in records) == tokens.decode(expected)
    for _, record in records:
        assert 0 < record["probability"] <= 1 and len(record["beat"]) == 4
        shares = [one["probability"] for one in record["beat"]]
        assert shares == sorted(shares, reverse=True) and sum(shares) + record["probability"] <= 1 + 1e-5


@pytest.mark.parametrize(
    "given, said",
    [
        ({"temperature": "-1"}, "temperature"),
        ({"prompt": "☃"}, "not among"),
        ({"length": "100000"}, "1 to 1000"),
        ({"length": "0"}, "1 to 1000"),
        ({"top_p": "2"}, "top_p"),
        ({"seed": "x"}, "whole number"),
        ({"model": "999"}, "no model"),
        ({"model": "../x"}, "no model"),
    ],
)
def test_wrong_wishes_are_told(visitor, trained, given, said):
    ((kind, words),) = stream(visitor, **{"model": trained[1], **given})
    assert kind == "problem" and said in words


def test_copies_are_found_and_are_copies(seed):
    book = "".join(chr(97 + int(n)) for n in torch.randint(26, (2000,)))
    said = "!" + book[100:140] + "?" + book[900:925] + "#" + book[5:15]
    assert writing.copies(said, book) == [(1, 40), (42, 25)]
    assert writing.copies(book[:19], book) == [] and writing.copies("", book) == []


def test_no_file_is_opened_because_a_model_names_it(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    assert writing.book(lab.Kept(None, {"text": str(secret)}, secret)) is None


def test_pages_without_a_model_say_what_to_do(studio):
    assert "Quick run of fairytales" in text(studio.get("/generate"))
    assert studio.get("/attention").status_code == 200


def weights(page: str) -> torch.Tensor:
    shown = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    raw = torch.frombuffer(bytearray(base64.b64decode(shown["weights"])), dtype=torch.uint8)
    n = len(shown["tokens"])
    return raw.view(shown["layers"], shown["heads"], n, n).float() / 255


def test_attention_of_a_model_is_its_own_until_changed(visitor, trained):
    given = {"model": trained[1], "text": "the code is"}
    own = weights(visitor.get("/attention/picture", params=given).text)
    found = lab.kept("latest", store=str(trained[0]), use="text")
    codes = writing.data.tokens_of(found.notes).encode(given["text"])
    with torch.inference_mode():
        assert torch.allclose(own, found.model.eval().attention_maps(codes), atol=0.5 / 255 + 1e-6)
    near = weights(
        visitor.get(
            "/attention/picture", params={**given, "neighbors": "causal & window", "window": "1"}
        ).text
    )
    apart = torch.arange(len(codes))[:, None] - torch.arange(len(codes))
    assert (near[..., (apart < 0) | (apart > 1)] == 0).all() and (own[..., apart > 1] > 0).any()
    even = weights(visitor.get("/attention/picture", params={**given, "similarity": "uniform"}).text)
    assert torch.allclose(even[0, 0, -1], torch.full((len(codes),), 1 / len(codes)), atol=0.5 / 255 + 1e-6)
    assert torch.equal(own, weights(visitor.get("/attention/picture", params=given).text)), (
        "the model is unharmed"
    )


def test_beta_sharpens(studio):
    """Of plain words, each listens most to itself and its likes, the more the larger β."""
    texts = [
        studio.get("/attention/picture", params={"text": "cat hat dog", "beta": b}).text
        for b in ("0.1", "1", "10")
    ]
    diagonals = [weights(page)[0, 0].diagonal() for page in texts]
    assert (diagonals[0] < diagonals[1]).all() and (diagonals[1] < diagonals[2]).all()


def test_the_plan_is_that_of_explain(studio):
    given = {"text": "one two three", "neighbors": "causal & window", "window": "4", "length": "5000"}
    plan = studio.get("/attention/plan", params=given).text
    view = looking.View.read(given)
    seen = looking.look(view, None)
    assert (
        plan == str(seen.plan(5000)) and "5,000 long" in plan.replace("5000", "5,000") and "Window(4)" in plan
    )
    x = torch.randn(1, 3, seen.dim)
    assert attend(x, x, x, similarity=seen.similarity, neighbors=seen.neighbors).shape == x.shape


@pytest.mark.parametrize(
    "given",
    [{"beta": "0"}, {"beta": "nan"}, {"window": "-1"}, {"similarity": "__import__"}, {"neighbors": "all"},
     {"text": " "}, {"length": "9999999"}, {"model": "999"}, {"text": "x" * 5000}],
)  # fmt: skip
def test_wrong_views_are_refused(studio, given):
    assert studio.get("/attention/plan", params=given).status_code == 422
    assert studio.get("/attention/picture", params=given).status_code == 422


def test_the_picture_admits_its_own_script_only(studio):
    answer = studio.get("/attention/picture", params={"text": "</script><script>alert(1)</script>"})
    (script,) = re.findall(r"<script>(.*?)</script>", answer.text, re.S)
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert (
        f"script-src 'sha256-{mark}';" in policy
        and "unsafe" not in policy
        and "frame-ancestors 'self'" in policy
    )
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
