"""`heedful generate` and `heedful attention`: every option, every mistake, and what the page holds."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
import torch

from heedful import cli, data, lab
from heedful.data import Characters, Pieces
from heedful.lab.looking import attention_page
from heedful.models import GPT, ConvNet, ViT

TEXT = "once upon a time there was a king; he had a daughter, naïve and fair.\n" * 4
BLOCK = 24


@pytest.fixture(scope="module", params=["characters", "pieces"])
def model(request, tmp_path_factory):
    """A small model in a file, far from its beginning, so that its text varies."""
    tokens = Characters(sorted(set(TEXT))) if request.param == "characters" else Pieces.learned(TEXT, 290)
    torch.manual_seed(request.config.seed)
    gpt = GPT(tokens.size, layers=2, heads=2, dim=16, block=BLOCK)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    path = tmp_path_factory.mktemp("kept") / "model.safetensors"
    gpt.save(path, notes={"use": "text", "text": "verse", **tokens.notes()})
    return str(path)


@pytest.fixture
def letters(model):
    if "symbols" not in lab.kept(model).notes:
        pytest.skip("pieces know every symbol")
    return model


def heedful(capsys, *words):
    status = cli.main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def written(capsys, model, *words):
    status, out, err = heedful(capsys, "generate", "--run", model, "--json", *words)
    assert status == 0, err
    return [text["text"] for text in json.loads(out)["texts"]]


def test_it_goes_on_from_the_prompt(model, capsys):
    status, out, err = heedful(capsys, "generate", "--run", model, "--prompt", "once", "--seed", "3")
    assert status == 0 and out.startswith("once") and "--seed 3" in err
    assert out == f"once{written(capsys, model, '--prompt', 'once', '--seed', '3')[0]}\n"


def test_it_is_what_the_model_generates(model, capsys):
    found = lab.kept(model)
    tokens = data.tokens_of(found.notes)
    options = ("--temperature", "0.7", "--top-p", "0.9", "--top-k", "5", "--seed", "11", "--length", "40")
    row = tokens.encode("a king").tolist()
    text = found.model.generate(row, 40, temperature=0.7, top_p=0.9, top_k=5, seed=11)
    assert written(capsys, model, "--prompt", "a king", *options) == [tokens.decode(text[len(row) :])]


def test_streamed_it_is_the_same_text(model, capsys):
    order = ("generate", "--run", model, "--prompt", "once", "--prompt", "a", "--seed", "5", "--length", "60")
    whole, streamed = heedful(capsys, *order), heedful(capsys, *order, "--stream")
    assert whole[:2] == streamed[:2] and whole[0] == 0
    assert written(capsys, model, "--prompt", "a", "--seed", "6", "--length", "60")[0] in whole[1]


def test_a_seed_is_a_text(model, capsys):
    texts = [written(capsys, model, "--prompt", "once", "--seed", seed)[0] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    without = [written(capsys, model, "--prompt", "once")[0] for _ in range(2)]
    assert without[0] != without[1]  # any seed


def test_temperature_0_takes_the_likeliest(model, capsys):
    cold = [written(capsys, model, "--prompt", "once", "--temperature", "0", "--seed", s)[0] for s in "12"]
    only = written(capsys, model, "--prompt", "once", "--top-k", "1")[0]
    assert cold[0] == cold[1] == only


def test_top_p_1_draws_from_all(model, capsys):
    order = ("--prompt", "once", "--seed", "4")
    assert written(capsys, model, *order, "--top-p", "1") == written(capsys, model, *order)
    assert written(capsys, model, *order, "--top-p", "1e-9")[0] == written(
        capsys, model, *order, "--top-k", "1")[0]  # fmt: skip


def test_prompts_of_any_length(model, capsys):
    long = TEXT * 3  # many times the block
    assert len(long) > 10 * BLOCK
    text = written(capsys, model, "--prompt", long, "--seed", "1", "--length", "10")[0]
    assert text == written(capsys, model, "--prompt", long, "--seed", "1", "--length", "10")[0] != ""
    empty = written(capsys, model, "--prompt", "", "--seed", "1", "--length", "10")
    assert empty == written(capsys, model, "--seed", "1", "--length", "10") and empty[0] != ""
    assert written(capsys, model, "--prompt", "a", "--length", "0") == [""]


def test_symbols_it_does_not_know(letters, capsys):
    status, out, err = heedful(capsys, "generate", "--run", letters, "--prompt", "Zürich €")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "3 symbols are not among the" in err and "'Z' 'ü' '€'" in err and "use --unknown skip" in err
    order = ("--seed", "2", "--length", "20")
    kept = written(capsys, letters, "--prompt", "€o€nce", "--unknown", "skip", *order)
    assert kept == written(capsys, letters, "--prompt", "once", *order)
    assert written(capsys, letters, "--prompt", "€", "--unknown", "skip", *order) == written(
        capsys, letters, *order)  # fmt: skip


def test_pieces_know_every_symbol(model, capsys):
    if "pieces" in lab.kept(model).notes:
        assert written(capsys, model, "--prompt", "Zürich €", "--length", "5")[0] != ""


def test_it_stops_where_told(letters, capsys):
    free = written(capsys, letters, "--prompt", "once", "--seed", "9", "--length", "80")[0]
    stop = free[30:32]
    text = written(capsys, letters, "--prompt", "once", "--seed", "9", "--length", "80", "--stop", stop)[0]
    assert text == free[: free.index(stop) + 2]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--temperature", "-1"], "--temperature=-1.0: takes a finite number, 0 (greedy) or more"),
        (["--temperature", "nan"], "--temperature=nan"),
        (["--temperature", "hot"], "--temperature"),
        (["--top-p", "0"], "--top-p=0.0: takes the mass to keep, in (0, 1]"),
        (["--top-p", "1.5"], "--top-p=1.5"),
        (["--top-k", "0"], "--top-k=0: takes how many tokens to keep, 1 or more"),
        (["--length", "-3"], "--length is -3"),
        (["--unknown", "skp"], "unknown --unknown 'skp'; did you mean 'skip'?"),
        (["--stop", ""], "--stop is empty"),
        (["--device", "tpu"], "--device is 'tpu'; it is cpu or cuda"),
        (["--stream", "--json"], "--json and --stream do not go together"),
        (["--promt", "a"], "unknown option '--promt'; did you mean '--prompt'?"),
        (["--run", "nowhere"], "holds no run"),
    ],
    ids=str,
)
def test_wrong_calls_get_one_line(model, words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = heedful(capsys, "generate", "--run", model, *words)
    assert (status, out) == (2, "") and err.startswith("heedful generate: ") and err.count("\n") == 1
    assert said in err


def test_the_model_of_a_run_variant_and_seed(tmp_path, capsys):
    settings = {"steps": "2", "characters": "1500", "batch": "4"}
    lab.run("fairytales", profile="quick", seeds=2, settings=settings, store=tmp_path, backend="loop")
    order = ("generate", "--runs", str(tmp_path), "--seed", "0", "--length", "5", "--json")
    texts = []
    for words in ([], ["--model-seed", "1"], ["--run", "fairytales", "--set", "size=nano"]):
        status, out, err = heedful(capsys, *order, *words)
        assert status == 0, err
        texts.append(json.loads(out)["model"].rpartition(", ")[2])
    assert texts == ["seed 0", "seed 1", "seed 0"]
    status, _, err = heedful(capsys, *order, "--set", "size=mini")
    assert status == 2 and "no model for text in any run with size=mini; there is fairytales (text)" in err


def look(capsys, model, tmp_path, *words):
    page = tmp_path / "page.html"
    status, out, err = heedful(capsys, "attention", "--run", model, "-o", str(page), "--json", *words)
    assert status == 0, err
    return json.loads(out), page.read_text(encoding="utf-8")


def held(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_holds_every_weight(model, capsys, tmp_path):
    found, page = look(capsys, model, tmp_path, "--prompt", "once a king")
    shown, gpt = held(page), lab.kept(model).model.eval()
    tokens = data.tokens_of(lab.kept(model).notes)
    assert "".join(shown["tokens"]) == "once a king" and found["tokens"] == shown["tokens"]
    raw = torch.frombuffer(bytearray(base64.b64decode(shown["weights"])), dtype=torch.uint8).float() / 255
    with torch.no_grad():
        maps = gpt.attention_maps(tokens.encode("once a king"))
    assert torch.allclose(raw.view(maps.shape), maps, atol=0.51 / 255)
    heads = [(head["layer"], head["head"]) for head in found["heads"]]
    assert heads == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert found["heads"][3]["most"] == maps[1, 1].argmax(-1).tolist()


def test_the_page_needs_no_network(model, capsys, tmp_path):
    _, page = look(capsys, model, tmp_path, "--prompt", "once")
    addresses = set(re.findall(r"https?://[^\"'\s)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_text_cannot_leave_its_place(capsys, tmp_path):
    page = attention_page(torch.eye(2).expand(1, 1, 2, 2), ["</script><script>alert(1)", "<b>"], about="<i>")
    assert page.count("</script>") == 2 and held(page)["tokens"][1] == "<b>"


def test_long_prompts_show_what_the_model_sees(model, capsys, tmp_path):
    _, page = look(capsys, model, tmp_path, "--prompt", TEXT)
    shown = held(page)
    assert len(shown["tokens"]) == BLOCK and f"the last {BLOCK} of" in shown["about"]


def test_a_picture_with_its_patches():
    image = torch.rand(1, 8, 8)
    shown = held(attention_page(torch.eye(5).expand(2, 3, 5, 5), list("c1234"), image=image, grid=(2, 2)))
    assert shown["picture"].startswith("data:image/png;base64,") and shown["extra"] == 1
    with pytest.raises(ValueError, match="takes a grid"):
        attention_page(torch.eye(5).expand(2, 3, 5, 5), list("c1234"), image=image)
    with pytest.raises(ValueError, match=r"take \(layers, heads, 4, 4\)"):
        attention_page(torch.eye(5).expand(2, 3, 5, 5), list("1234"))


def test_what_a_vision_transformer_looks_at(capsys, tmp_path, seed):
    vit = ViT(8, 4, 1, 3, layers=2, heads=2, dim=16).eval()
    notes = {
        "use": "classes",
        "classes": list("abc"),
        "channels": 1,
        "size": [8, 8],
        "mean": 0.5,
        "deviation": 2.0,
    }
    path = str(vit.save(tmp_path / "vit.safetensors", notes=notes))
    image = torch.randint(256, (1, 8, 8), dtype=torch.uint8)
    picture = str(data.save_picture(image, tmp_path / "image.png"))
    found, page = look(capsys, path, tmp_path, "--image", picture)
    shown = held(page)
    assert found["tokens"] == ["class", "1, 1", "1, 2", "2, 1", "2, 2"] and shown["grid"] == [2, 2]
    raw = torch.frombuffer(bytearray(base64.b64decode(shown["weights"])), dtype=torch.uint8).float() / 255
    with torch.no_grad():
        maps = vit.attention_maps((image / 255 - 0.5) / 2)
    assert torch.allclose(raw.view(maps.shape), maps, atol=0.52 / 255)
    net = str(ConvNet.rotation(1, 3, 8).save(tmp_path / "net.safetensors", notes=notes))
    status, _, err = heedful(capsys, "attention", "--run", net, "--image", picture)
    assert status == 2 and "a ConvNet has no attention to look at" in err


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "what is it to look at?"),
        (["--prompt", ""], "what is it to look at?"),
        (["--prompt", "a", "--image", "a.png"], "what is it to look at?"),
        (["--image", "a.png"], "There is no file a.png"),
        (["--prompt", "€"], "1 symbol is not among"),
        (["--prompt", "€", "--unknown", "skip"], "nothing is left of it"),
        (["--prompt", "a", "-o", "no/such/folder/page.html"], "there is no folder no/such/folder"),
    ],
    ids=str,
)
def test_wrong_looks_get_one_line(letters, words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = heedful(capsys, "attention", "--run", letters, *words)
    assert (status, out) == (2, "") and err.count("\n") == 1 and said in err
    assert not list(Path(tmp_path).iterdir())
