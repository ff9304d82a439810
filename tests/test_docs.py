"""What the documentation says to type works and prints what it says; what is made from code is current."""

import re
import runpy
import shlex
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import torch

from heedful import bench, claims, cli, data, lab, models, nn
from heedful.attention import strategies
from heedful.commands.lab import settings as set_by
from heedful.data.registry import DATASETS
from heedful.doctor import kinds
from heedful.doctor.cases import CASES
from heedful.doctor.rules import common
from heedful.lab.study import _STUDIES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDER = DOCS / "architectures"
ARCHITECTURES = sorted(page for page in FOLDER.glob("*.md") if page.stem != "README")
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PICTURES = runpy.run_path(str(FOLDER / "pictures"))["PICTURES"]
IDEAS = runpy.run_path(str(DOCS / "ideas" / "pictures"))["PICTURES"]
SITE = runpy.run_path(str(DOCS / "site" / "__main__.py"), run_name="site")
every = pytest.mark.parametrize("page", ARCHITECTURES, ids=lambda page: page.stem)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in some languages. ```py is quoted source, not something to run."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    return [text for language, text in found if language in languages]


# Python

# Whose Python is run by the tests of its own room; they read the page, block by block.
ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "docs/claims.md": "tests/claims/test_commands.py",
    "docs/data.md": "tests/data/test_page.py",
    "docs/doctor.md": "tests/doctor/test_pages.py",
    "docs/fairytales.md": "tests/studies/test_fairytales.py",
    "docs/lab.md": "tests/lab/test_page.py",
    "docs/pyg.md": "tests/interop/test_pyg_layers.py",
    "docs/training.md": "tests/training/test_page.py",
    # Their programs are those of the doctor's corpus, letter for letter, and have the bug they show.
    **{name_of(page): "tests/doctor/test_corpus.py" for page in (DOCS / "findings").glob("*.md")},
}
PYTHON = [page for page in PAGES if blocks(page, "python") and name_of(page) not in ELSEWHERE]


@pytest.fixture
def registries():
    """What a page registers (studies, claims, findings, sets, strategies of its own) is gone afterwards."""
    claims.claims(), lab.studies()  # imported once, they register once
    own = sys.modules["heedful.claims.claim"]._CLAIMS
    kept = [DATASETS, _STUDIES, own, kinds.KINDS, strategies.STRATEGIES]
    before, rules = [dict(each) for each in kept], list(common.RULES)
    yield
    for each, was in zip(kept, before, strict=True):
        each.clear()
        each.update(was)
    common.RULES[:] = rules


@pytest.mark.parametrize("page", PYTHON, ids=name_of)
def test_python_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys, registries, seed):
    """Block after block as a reader would; every `# → …` is printed, in that order."""
    for library in ("transformers", "torch_geometric"):
        if library in page.read_text(encoding="utf-8"):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec", dont_inherit=True), names)
        printed = iter(capsys.readouterr().out.splitlines())
        for promised in re.findall(r"# → (.*)$", block, re.M):
            assert promised.rstrip() in printed, f"{page.name} says it prints {promised!r}"


@pytest.mark.parametrize("page", sorted(set(ELSEWHERE.values())))
def test_what_is_run_elsewhere_is(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in (name for name, where in ELSEWHERE.items() if where == page):
        told = (
            "corpus"
            if "/findings/" in name
            else "page.ABOUT"
            if name.endswith("claims.md")
            else Path(name).name
        )
        assert told in text, f"{page} does not run {name}"
        assert (ROOT / name).exists()


# Commands

RUN = {
    "tour": None,
    "explain": [r".*"],
    "list": [r".*"],
    "report": [r"report$"],
    "claims": [r"claims (A2.3|B1.4|D1.8|C2.6) --explain", r"claims --module my_claims.py"],
    "run": [r"run zero-grad --profile quick$"],
    "compare": [r".*"],
    "data": [r"data list$"],
    "bench": [r"bench --list$"],
    "doctor": [r"doctor train.py --steps 50 -- --lr 0.1"],
    "generate": [r"generate --prompt"],
    "attention": [r"attention -"],
    "segment": [r".*"],
    "classify": [r".*"],
}
# The others are read by the real command line, and the names of studies, settings, claims, sets, cases and
# benchmarks in them are looked up, no more. Why:
ONLY_READ = {
    "tour": "tests/test_tour.py runs it",
    "run": "minutes to hours, or a study's quick profile, which tests/studies runs small for every study",
    "claims": "seconds to minutes each; tests/claims measures every claim",
    "report": "of somebody's folder",
    "bench": "minutes; a benchmark is never a test",
    "calibrate": "minutes",
    "data": "would download; tests/data/test_page.py fetches where the files are",
    "doctor": "half a minute each; tests/doctor runs every case, and the corpus",
    "generate": "of a larger model, 500 tokens twice; the shorter call is run",
    "attention": "only named: it needs a prompt or an image",
    "studio": "serves until it is stopped; tests/studio starts it",
    "docs": "serves until it is stopped; tests/test_site.py starts it",
}


def commands_of(text: str) -> list[str]:
    """`heedful …` in blocks without a language and in code within text; with … or a NAME it is no command."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.S | re.M)
    lines = [line for language, block in fenced if not language for line in block.splitlines()]
    found = [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?heedful ", line)]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    found += [re.sub(r"\s+", " ", code) for code in re.findall(r"`(heedful [^`]*)`", rest)]
    words = [" ".join(line.partition(" #")[0].split()[1:]) for line in found]
    return [line for line in words if "…" not in line and not re.search(r"\b(NAME|FOLDER)\b", line)]


@cache
def commands() -> dict[str, str]:
    """Every command of the documentation, pages made from the code included, and where it stands."""
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    texts |= sys.modules["of_studies"].pages()
    made = sys.modules["of_claims"]
    texts |= {f"claims/{id}.md": made.page(entry, None, False) for id, entry in made.ours().items()}
    return {line: place for place, text in texts.items() for line in commands_of(text)}


def is_run(line: str) -> bool:
    return any(re.match(pattern, line) for pattern in RUN.get(line.split()[0]) or ())


def test_every_command_is_understood(tmp_path, monkeypatch):
    """By the command line itself, and every name in it is known."""
    assert len(commands()) > 150
    for line, place in commands().items():
        verb, *words = shlex.split(line.partition(" > ")[0])
        try:
            parsed = cli._parse(cli.choose("verb", verb, cli.VERBS), words)
            known(verb, parsed)
        except Exception as error:
            raise AssertionError(f"{place} says to type `heedful {line}`: {error}") from error
        assert is_run(line) or verb in ONLY_READ, f"`heedful {line}` is neither run nor excused"


def known(verb: str, parsed) -> None:
    """Look up what a command names; whatever is unknown raises."""
    if verb == "run" and parsed.study != "all":
        assert lab.find(parsed.study).variants(parsed.profile, set_by(parsed.set)), "no variant is left"
    elif verb == "claims":
        for id in parsed.ids:
            claims.find(id)
        claims.claims(parsed.document)
    elif verb == "bench":
        assert set(parsed.names) <= set(bench.table(parsed.device)), "no such benchmark"
    elif verb == "data":
        cli.choose("action", parsed.action, ["list", "show", "fetch"])
        for name in parsed.names:
            data.describe(name)
    elif verb == "doctor" and parsed.case is not None:
        cli.choose("case", parsed.case, CASES)


TRAINING = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=parser.parse_args().lr)
for step in range(60):
    x = torch.randn(32, 4)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder as a reader would have it: a script, claims, pictures; models are trained as needed."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "train.py").write_text(TRAINING)
    [example, *_] = blocks(DOCS / "claims.md", "python")
    (folder / "my_claims.py").write_text(example)
    for name in ("image", "section", "one", "two", "ink-on-paper", "picture", "digit"):
        data.save_picture(torch.randint(256, (1, 40, 40)).byte(), folder / f"{name}.png")
    return folder


def trained(folder: Path, name: str, **settings) -> None:
    lab.run(
        name,
        profile="quick",
        seeds=1,
        settings=settings,
        store=folder / "runs",
        backend="loop",
        progress=False,
    )


NEEDS = {
    "generate": [("fairytales", {"steps": 2, "batch": 4, "characters": 4000})],
    "attention": [
        ("fairytales", {"steps": 2, "batch": 4, "characters": 4000}),
        ("vit", {"epochs": 1, "net": "vit", "share": 10}),
    ],
    "segment": [("unet", {"steps": 2, "images": 3})],
    "classify": [("vit", {"epochs": 1, "share": 10})],
    "report": [("zero-grad", {"problem": "bowl"})],
    "compare": [("zero-grad", {"problem": "bowl"})],
}


@pytest.mark.parametrize("verb", [verb for verb in RUN if RUN[verb]])
def test_commands_run(verb, desk, monkeypatch, capsys, registries):
    monkeypatch.chdir(desk)
    for study, settings in NEEDS.get(verb, ()):
        trained(desk, study, **settings)
    lines = [line for line in commands() if line.split()[0] == verb and is_run(line)]
    assert lines
    for line in lines:
        words = shlex.split(re.sub(r"\bRUN\b", "latest", line))
        status, said = cli.main(words), capsys.readouterr()
        expected = (0, 1) if verb == "doctor" else (0,)  # 1: something serious was found
        assert status in expected and said.out, f"heedful {line}: {said.err}"


def test_other_commands_exist():
    """make, pip install and python, wherever a page says so."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?:^|`)make (\w+)", text, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page.name}: make {target}"
        for extra in re.findall(r"pip install '?heedful\[(\w+)\]", text):
            assert extra in extras, f"{page.name}: heedful[{extra}]"
        for path in re.findall(r"`python (docs/\S+?)(?: --\w+)?`", text):
            assert (ROOT / path).exists(), f"{page.name}: python {path}"


# Pages


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


@pytest.mark.parametrize("name", sorted(IDEAS))
def test_pictures_of_ideas_are_what_the_script_draws(name):
    """`python docs/ideas/pictures` writes them anew."""
    assert str(IDEAS[name]()) == (DOCS / "ideas" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")


def test_every_page_has_a_picture_and_every_picture_a_page():
    assert (
        set(PICTURES)
        == {page.stem for page in ARCHITECTURES}
        == {p.stem for p in FOLDER.glob("pictures/*.svg")}
    )


def test_no_public_name_is_forgotten():
    text = "\n".join(page.read_text(encoding="utf-8") for page in ARCHITECTURES)
    names = [*nn.__all__, *models.__all__]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_idea_pages_name_all_there_is():
    import heedful

    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "ideas").glob("*.md"))
    assert [name for name in heedful.__all__ if not re.search(rf"\b{name}\b", text)] == []
    assert [name for name in strategies.STRATEGIES if f"`{name}`" not in text] == []


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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_navigation_knows_every_page():
    pages = [name for name in SITE["written"]() if name.endswith(".md")]
    listed = re.findall(r"\S+\.md", SITE["settings"](pages))
    assert sorted(set(pages) - set(listed)) == []
    assert len(listed) == len(set(listed))


def test_the_map_in_the_readme_is_the_registry_s():
    """`python docs/site --readme` writes it anew."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert sys.modules["of_claims"].with_map(text) == text
    assert [
        id for id in claims.claims() if f"`heedful claims {id} --explain`" not in text and id[0] in "ABCDE"
    ] == []
