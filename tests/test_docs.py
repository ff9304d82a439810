"""What the pages on architectures say to type works and prints what they say; no public name is forgotten."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from heedful import models, nn

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "architectures"
PAGES = sorted(FOLDER.glob("*.md"))
INTEROP = [page for page in (DOCS / "interop.md", DOCS / "pyg.md") if page.exists()]
PICTURES = runpy.run_path(str(FOLDER / "pictures"))["PICTURES"]
every = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def run(page: Path, folder: Path, monkeypatch, capsys) -> None:
    """A page's Python, block after block as a reader would; every `# → …` is printed, in that order."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    assert blocks, f"{page.name} shows no use"
    monkeypatch.chdir(folder)
    names: dict = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
        printed = iter(capsys.readouterr().out.splitlines())
        for promised in re.findall(r"# → (.*)$", block, re.M):
            assert promised.rstrip() in printed, f"{page.name} says it prints {promised!r}"


@every
def test_python_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys, seed):
    run(page, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("page", INTEROP, ids=lambda page: page.stem)
def test_drop_ins_run_where_the_library_is(page, tmp_path, monkeypatch, capsys, seed):
    for library in ("transformers", "torch_geometric"):
        if library in page.read_text(encoding="utf-8"):
            pytest.importorskip(library)
    run(page, tmp_path, monkeypatch, capsys)


@every
def test_a_page_has_its_parts(page):
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n[A-Z].+", text), "a title, then what it is"
    assert re.search(r"^```\n(?:.*\n)*?.*=", text, re.M), "the formula"
    assert f"](pictures/{page.stem}.svg)" in text, "the picture"
    assert [
        title for title in ("Use", "Options worth knowing", "Checked") if f"\n## {title}\n" not in text
    ] == []
    assert len(text.splitlines()) <= 90, "one screen and a half"


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_pictures_are_what_the_script_draws(name):
    """`python docs/architectures/pictures` writes them anew."""
    assert str(PICTURES[name]()) == (FOLDER / "pictures" / f"{name}.svg").read_text(encoding="utf-8")


def test_every_page_has_a_picture_and_every_picture_a_page():
    assert set(PICTURES) == {page.stem for page in PAGES} == {p.stem for p in FOLDER.glob("pictures/*.svg")}


def test_no_public_name_is_forgotten():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = [*nn.__all__, *models.__all__]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


COUNTS = {  # where a page or the README says how many parameters, and of what
    "README gpt": lambda: [models.GPT.of_size("nano", 87), models.GPT.of_size("gpt2")],
    "README rnn": lambda: [models.RNN(27, hidden=64)],
    "README vit": lambda: [models.ViT.of_size("base")],
    "README convnet": lambda: [models.ConvNet.net1(), models.ConvNet.rotation()],
    "README resnet": lambda: [models.ResNet(20), models.ResNet(56)],
    "README unet": lambda: [
        models.UNet(),
        models.UNet(1, 2, widths=[64, 128, 256, 512, 1024], padding="valid", norm="none"),
    ],
    "README autoencoder": lambda: [models.Autoencoder(784, [256, 64])],
    "README gcn": lambda: [models.GCN(1433, 16, 7), models.GAT(1433, 8, 7)],
    "README mpnn": lambda: [
        models.MPNN(11, 64, 1, edge_features=4, readout="sum"),
        models.GraphTransformer(16, 32, 3, neighbors="everyone", positions=4),
    ],
    "gpt | `": lambda: [models.GPT.of_size(size, 87) for size in ("nano", "micro", "mini")],
    "vit | parameters": lambda: [models.ViT.of_size(size) for size in models.ViT.sizes],
    "resnet | parameters": lambda: [models.ResNet(depth) for depth in (20, 32, 44, 56, 110)],
    "rnn `RNN(27": lambda: [models.RNN(27, hidden=64, kind=kind) for kind in ("elman", "lstm", "gru")],
    "autoencoder": lambda: [models.Autoencoder(784, [256, 64], tied=tied) for tied in (False, True)],
    "mpnn": lambda: [
        models.MPNN(11, 64, 1, edge_features=4, readout="sum", shared=shared) for shared in (False, True)
    ],
    "masked_autoencoder": lambda: [models.MaskedAutoencoder(), models.MaskedAutoencoder().encoder],
}


@pytest.mark.parametrize("where", COUNTS)
def test_parameter_counts_are_true(where):
    """In that order in the text, after the words that are looked for."""
    name, _, words = where.partition(" ")
    file = DOCS.parent / "README.md" if name == "README" else FOLDER / f"{name}.md"
    words = f"(docs/architectures/{words}.md)" if name == "README" else words
    text = file.read_text(encoding="utf-8")
    rest = text[text.index(words) :]
    with torch.device("meta"):
        for model in COUNTS[where]():
            count = f"{model.parameter_count:,}"
            assert count in rest, f"{file.name} does not say {count} of {type(model).__name__}"
            rest = rest[rest.index(count) :]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_index_knows_every_page():
    linked = set(re.findall(r"\]\(([^)#\s]+)", (DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert sorted(pages - linked) == []
