"""Rules of the house: arrows point up, importing is light, all that is public has an example."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import heedful

ROOT = Path(__file__).parent.parent
HEAVY = [
    "numba",
    "matplotlib",
    "scipy",
    "networkx",
    "rich",
    "tyro",
    "torch_geometric",
    "sklearn",
    "fastapi",
    "plotly",
]


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_arrows_point_up():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as run; run()",
            "--no-cache",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_is_light():
    loaded = python(
        f"import heedful, sys; print(*[name for name in {HEAVY + ['torch']} if name in sys.modules])"
    )
    assert loaded == ""


def test_the_operator_loads_torch_and_no_more():
    loaded = python(
        "import heedful, sys, torch\n"
        "x = torch.randn(2, 5, 4)\n"
        "heedful.attend(x, x, x, neighbors=heedful.Causal())\n"
        "heedful.explain(x, x, x)\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules])"
    )
    assert loaded == ""


def test_names_are_found_when_first_used():
    assert python("from heedful import attend; print(attend.__name__)") == "attend"
    assert python("import heedful; print(heedful.attention.attend is heedful.attend)") == "True"
    assert python("from heedful import *; print(Graph.__name__, Causal())") == "Graph Causal()"
    assert (
        python("import heedful, pickle; print(pickle.loads(pickle.dumps(heedful.Causal)) is heedful.Causal)")
        == "True"
    )
    with pytest.raises(AttributeError, match="'heedful' has no attribute 'atend'"):
        _ = heedful.atend
    with pytest.raises(ImportError, match="atend"):
        exec("from heedful import atend")


def test_names_are_listed():
    assert set(heedful.__all__) <= set(dir(heedful))
    assert heedful.__all__ == sorted(heedful.__all__)
    assert python("import heedful; print(set(heedful.__all__) <= set(dir(heedful)))") == "True"


def test_types_and_names_agree():
    """What type checkers are told is what __getattr__ finds."""
    import ast

    tree = ast.parse((ROOT / "src/heedful/__init__.py").read_text())
    told = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert told == set(heedful.__all__)


@pytest.mark.parametrize("name", heedful.__all__)
def test_everything_public_explains_itself(name):
    thing = getattr(heedful, name)
    assert thing.__doc__ and len(thing.__doc__.strip()) > 20, f"{name} has no docstring"
    for part in [
        thing,
        *([member for key, member in vars(thing).items() if key == "__init__"] * inspect.isclass(thing)),
    ]:
        parameters = inspect.signature(part).parameters
        assert all(not key.startswith("_") for key in parameters)


@pytest.mark.parametrize("name", heedful.__all__)
def test_examples_run(name):
    thing = getattr(heedful, name)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=options)
    found = doctest.DocTestFinder(recurse=False).find(
        thing, name, globs=vars(sys.modules[thing.__module__]).copy()
    )
    assert found
    for example in found:
        output: list[str] = []
        runner.run(example, out=output.append)
        assert runner.failures == 0, "".join(output)


def test_everything_public_has_an_example():
    without = [name for name in heedful.__all__ if ">>>" not in (getattr(heedful, name).__doc__ or "")]
    assert not without, f"no example in the docstring of {', '.join(without)}"


def test_version_is_told_once():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project.get("version", heedful.__version__) == heedful.__version__
