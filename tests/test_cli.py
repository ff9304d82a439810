"""The command: quick to answer, one line for a mistake, the same on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from rich.console import Console

import heedful
from heedful import Causal, Graph, Plan, Window, bench, cli, display, phrases
from heedful.attention import constants


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    try:
        status = cli.main(arguments)
    except SystemExit as stop:  # tyro's --help
        status = stop.code or 0
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["explain", "--help"], []], ids=str)
def test_answers_at_once(arguments):
    """Half a second of work beyond what starting Python takes, and no torch."""

    def work(command) -> float:
        """Processor time: unlike the clock, it does not mind what else the machine is doing."""
        before = os.times()
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    bare = min(work([sys.executable, "-c", "pass"]) for _ in range(3))
    assert min(work([sys.executable, "-m", "heedful", *arguments]) for _ in range(3)) - bare < 0.5
    code = f"import sys; from heedful.cli import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
    code += "print([m for m in ('torch', 'numba', 'matplotlib', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"heedful {heedful.__version__}\n", "")


def test_help_names_every_verb_and_option(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0 and all(verb in out for verb in cli.VERBS)
    assert run(capsys)[1] == out
    for verb in cli.VERBS:
        status, out, _ = run(capsys, verb, "--help")
        assert status == 0 and f"heedful {verb}" in out


# Mistakes


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["explane"], ["unknown verb 'explane'", "did you mean 'explain'?"]),
        (["frobnicate"], ["unknown verb 'frobnicate'", "explain, calibrate, bench, tour"]),
        (["explain", "--querys", "3"], ["unknown option '--querys'", "did you mean '--queries'?"]),
        (["explain", "--queries=x"], ["--queries", "'x'"]),
        (["explain", "--queries"], ["--queries"]),
        (["explain", "spare"], ["spare"]),
        (["explain", "--queries", "0"], ["--queries is 0", "1 or more"]),
        (["explain", "--heads", "4", "--key-heads", "3"], ["query has 4 heads, key 3"]),
        (["explain", "--position", "alibo"], ["unknown --position 'alibo'", "did you mean 'alibi'?"]),
        (["explain", "--dtype", "float"], ["unknown --dtype 'float'", "float32"]),
        (["explain", "--device", "gpu"], ["unknown --device 'gpu'", "cuda"]),
        (["explain", "--strategy", "fuse"], ["unknown --strategy 'fuse'", "did you mean 'fused'?"]),
        (["explain", "--strategy", "factored"], ["refuses", "These would do"]),
        (["explain", "--dropout", "2"], ["dropout=2.0", "[0, 1)"]),
        (["explain", "--degree", "3"], ["--degree 3", "polynomial"]),
        (["explain", "--window", "3"], ["--window 3", "--neighbors window"]),
        (["explain", "--edges", "-1"], ["--edges is -1"]),
        (["explain", "--dim", "3", "--position", "rotary"], ["Rotary", "even"]),
        (["calibrate", "--device", "tpu"], ["unknown --device 'tpu'"]),
        (["calibrate", "--seconds", "0"], ["--seconds is 0"]),
        (["bench", "gta"], ["unknown benchmark 'gta'", "did you mean 'gat'?"]),
        (["bench", "features"], ["'features'", "--device cuda"]),
    ],
    ids=lambda entry: " ".join(entry) if entry and not any(" " in word for word in entry) else "",
)
def test_a_mistake_is_one_line(capsys, arguments, words):
    status, out, err = run(capsys, *arguments)
    assert status == 2 and out == ""
    assert err.startswith("heedful") and err.count("\n") == 1 and "Traceback" not in err
    missing = [word for word in words if word not in err]
    assert not missing, f"{missing} not in {err}"


@pytest.mark.parametrize(
    "option, text, mark, words",
    [
        (
            "--neighbors",
            "causal & windo(3)",
            (9, 5),
            ["'windo'", "did you mean 'window'?", "known: causal, everyone"],
        ),
        ("--neighbors", "causal &", (8, 1), ["expected a name", "known:"]),
        ("--neighbors", "causal window(3)", (7, 6), ["expected &, | or the end"]),
        ("--neighbors", "(causal", (7, 1), ["expected )"]),
        ("--neighbors", "window(3", (8, 1), ["expected , or )"]),
        ("--neighbors", "window(x)", (8, 1), ["expected ="]),
        ("--neighbors", "window(2.5)", (0, 6), ["width=2.5", "whole number"]),
        ("--neighbors", "window", (0, 6), ["needs a width", "window(256)"]),
        ("--neighbors", "window(1, 2)", (0, 6), ["window takes"]),
        ("--neighbors", "causal $", (7, 1), ["'$'"]),
        ("--neighbors", "", (0, 1), ["expected a name, got nothing"]),
        ("--similarity", "sofmax", (0, 6), ["'sofmax'", "did you mean 'softmax'?", "known: additive"]),
        ("--similarity", "softmax & elu", (8, 1), ["expected the end"]),
        ("--similarity", "polynomial(degree=2, degree=3)", (21, 6), ["given twice"]),
        ("--similarity", "additive(7)", (0, 8), ["[0, 1]"]),
        ("--similarity", "polynomial(power=2)", (0, 10), ["'power'"]),
        ("--similarity", "__import__('os')", (0, 10), ["unknown name '__import__'"]),
    ],
)
def test_a_phrase_that_cannot_be_read_is_pointed_at(capsys, option, text, mark, words):
    status, out, err = run(capsys, "explain", option, text)
    assert status == 2 and out == "" and "Traceback" not in err
    lines = err.splitlines()
    assert lines[1] == f"  {text}"
    assert lines[2] == "  " + " " * mark[0] + "^" * mark[1]
    assert not [word for word in words if word not in err]


# Phrases


@pytest.mark.parametrize(
    "text, expected",
    [
        ("causal", "Causal()"),
        ("Everyone", "Everyone()"),
        ("causal & window(256)", "Causal() & Window(256)"),
        ("window(64) | global(0,1)", "Window(64) | Global([0, 1])"),
        ("causal & window(2) | global([0])", "Causal() & Window(2) | Global([0])"),
        ("causal & (window(2) | global(0))", "Causal() & (Window(2) | Global([0]))"),
        ("segments(3, 4) & causal", "Segments([3, 4]) & Causal()"),
        ("  ( ( causal ) )  ", "Causal()"),
        ("window(width = 7)", "Window(7)"),
    ],
)
def test_neighbors_are_read(text, expected):
    assert repr(phrases.parse_neighbors(text)) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("softmax", "Softmax()"),
        ("softmax(0.5)", "Softmax(scale=0.5)"),
        ("argmax", "Argmax()"),
        ("polynomial", "Polynomial(degree=2)"),
        ("polynomial(3)", "Polynomial(degree=3)"),
        ("polynomial(degree=3, constant=0.5)", "Polynomial(degree=3, constant=0.5)"),
        ("polynomial(constant=-1e-1)", "Polynomial(degree=2, constant=-0.1)"),
        ("elu", "EluKernel()"),
        ("random(64)", "RandomFeatures(64)"),
        ("additive", "Additive(slope=0.2)"),
        ("additive(.1)", "Additive(slope=0.1)"),
        ("uniform", "Uniform()"),
    ],
)
def test_similarities_are_read(text, expected):
    assert repr(phrases.parse_similarity(text)) == expected


def test_what_is_printed_can_be_read_back():
    """The repr of a pattern, in lower case, is a phrase for it."""
    for pattern in (
        Causal() & Window(3),
        Window(1) | Causal() & Window(9),
        Causal() & (Window(1) | Window(2)),
    ):
        assert phrases.parse_neighbors(repr(pattern)) == pattern


# explain


def plan_of(capsys, *arguments: str) -> Plan:
    status, out, err = run(capsys, "explain", "--json", *arguments)
    assert status == 0 and err == ""
    return Plan.from_json(out)


def test_explain_says_what_the_plan_says(capsys):
    options = ("--queries", "4096", "--dim", "16", "--similarity", "polynomial", "--degree", "2")
    plan = plan_of(capsys, *options)
    assert plan.strategy == "factored"
    assert (plan.problem.queries, plan.problem.keys, plan.problem.dim, plan.problem.heads) == (
        4096,
        4096,
        16,
        8,
    )
    status, out, _ = run(capsys, "explain", *options)
    assert status == 0 and out == f"{plan}\n"


def test_explain_takes_everything(capsys):
    sizes = "--queries 64 --keys 128 --dim 8 --value-dim 6 --heads 4 --key-heads 2 --batch 3 --window 16"
    rest = "--position relative --dtype bfloat16 --training --dropout 0.1 --approximate --strategy tiled"
    plan = plan_of(capsys, *sizes.split(), *rest.split(), "--neighbors", "causal & window")
    problem = plan.problem
    assert (problem.queries, problem.keys, problem.dim, problem.value_dim) == (64, 128, 8, 6)
    assert (problem.heads, problem.key_heads, problem.batch, problem.dtype) == (4, 2, 3, "bfloat16")
    assert problem.gradient and problem.dropout and not problem.exact and plan.strategy == "tiled"
    assert problem.neighbors.name == "Causal() & Window(16)" and problem.position.learned
    assert not plan_of(capsys, "--no-training").problem.gradient


@pytest.mark.parametrize("position", ["none", "relative", "alibi", "rotary", "t5"])
@pytest.mark.parametrize(
    "similarity", ["softmax", "argmax", "polynomial", "elu", "random(16)", "additive", "uniform"]
)
def test_every_similarity_with_every_position(capsys, similarity, position):
    if (similarity, position) == ("additive", "rotary"):
        return
    plan = plan_of(capsys, "--queries", "32", "--similarity", similarity, "--position", position)
    assert plan.problem.value_dim == 64


def test_explain_a_graph(capsys):
    plan = plan_of(capsys, "--queries=1000", "--edges=5000", "--similarity=additive", "--training")
    assert plan.problem.neighbors.graph and plan.problem.neighbors.pairs == 5000 and plan.strategy == "sparse"
    both = plan_of(capsys, *["--queries", "100", "--keys", "50", "--edges", "500", "--neighbors", "causal"])
    assert both.problem.neighbors.name.endswith("& Causal()") and both.problem.keys == 50


def test_explain_a_device_that_is_not_here(capsys):
    assert plan_of(capsys, "--device", "cuda").problem.device == "cuda"


def test_analyze_measures(capsys):
    plan = plan_of(capsys, "--queries=16", "--heads=1", "--dim=4", "--similarity=elu", "--analyze")
    assert all(candidate.measured > 0 for candidate in plan.candidates if candidate.reason is None)


def test_a_plan_on_a_terminal_says_the_same(capsys):
    plan = plan_of(capsys, "--queries", "256")
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    display.show_plan(plan, console)
    shown = " ".join(console.file.getvalue().split())
    for row in plan.rows():
        assert all(cell.strip() in shown for cell in row)
    assert all(" ".join(line.split()) in shown for line in str(plan).splitlines()[:3])


def test_markup_in_a_reason_is_text():
    graph = Graph.from_edges([0], [0], nodes=3)
    import torch

    x = torch.zeros(3, 1)
    plan = heedful.explain(
        x, x, x, similarity=heedful.ScoreFunction(lambda q, k: q @ k.mT), neighbors=graph & Window(1)
    )
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    display.show_plan(plan, console)  # brackets in names must not be taken for rich's markup
    display.show_rows([{"name": "[bold]x[/nothing]", "n": 1.5}], console)
    assert "[bold]x[/nothing]" in console.file.getvalue()


# calibrate


def test_calibration_is_shown_and_forgotten(capsys, tmp_path, monkeypatch):
    path = tmp_path / "calibration.json"
    monkeypatch.setattr(constants, "calibration_file", lambda: path)
    constants.forget()
    try:
        status, out, _ = run(capsys, "calibrate", "--show")
        assert status == 0 and "fused" in out and "defaults" in out
        shipped = json.loads(run(capsys, "calibrate", "--show", "--json")[1])
        assert shipped["path"] is None and len(shipped["seconds"]["fused"]["forward"]) == 4
        constants.save_calibration("cpu", {"seconds": shipped["seconds"]})
        assert str(path) in run(capsys, "calibrate", "--show")[1]
        assert run(capsys, "calibrate", "--forget")[:2] == (0, f"forgot {path}\n")
        assert not path.exists() and not constants.constants("cpu").calibrated
        assert "nothing to forget" in run(capsys, "calibrate", "--forget")[1]
        assert json.loads(run(capsys, "calibrate", "--forget", "--json")[1])["forgotten"] is False
    finally:
        monkeypatch.undo()
        constants.forget()


def test_calibration_reports(capsys, tmp_path, monkeypatch):
    from heedful.attention import calibrate

    asked = {}

    @dataclass
    class Found:
        path = tmp_path / "calibration.json"
        unsure = {"tiled forward": 0.9}

        def table(self):
            return [("strategy", "direction", "error"), ("fused", "forward", "3 %")]

    def fake(*, device, budget, progress):
        asked.update(device=device, budget=budget)
        progress(0.5, "Softmax() · Everyone()")
        progress(1.0, "fitting")
        return Found()

    monkeypatch.setattr(calibrate, "calibrate", fake)
    status, out, _ = run(capsys, "calibrate", "--seconds", "7")
    assert status == 0 and asked == {"device": "cpu", "budget": 7.0}
    assert "fused" in out and "3 %" in out and f"kept in {Found.path}" in out
    assert "left at the defaults: tiled forward" in out
    rows = json.loads(run(capsys, "calibrate", "--json")[1])["rows"]
    assert rows == [{"strategy": "fused", "direction": "forward", "error": "3 %"}]


# bench


@pytest.fixture
def fake_benchmarks(monkeypatch):
    monkeypatch.setattr(
        bench, "BENCHMARKS", {name: bench.Benchmark(name, f"About {name}", name) for name in ("one", "two")}
    )
    asked = []

    def run(names, *, quick, device):
        asked.append((list(names), quick, device))
        for name in names or bench.BENCHMARKS:
            rows = [{"N": 8, "ms": 0.12345678, "who": "heedful"}, {"N": 16, "ms": float("inf"), "who": None}]
            yield bench.Result(name, f"About {name}", rows, "faster", True)

    monkeypatch.setattr(bench, "run", run)
    return asked


def test_bench_prints_a_table_each(capsys, fake_benchmarks):
    status, out, _ = run(capsys, "bench", "--quick")
    assert status == 0 and fake_benchmarks == [([], True, "cpu")]
    assert (
        "one: About one" in out and "two: About two" in out and "0.1235" in out and out.count("faster") == 2
    )


def test_bench_by_name_with_json(capsys, fake_benchmarks, tmp_path):
    path = tmp_path / "new" / "bench.json"
    status, out, _ = run(capsys, "bench", "two", "--json", str(path))
    assert status == 0 and "About two" in out and "About one" not in out
    (result,) = json.loads(path.read_text())
    assert result["name"] == "two" and result["verdict"] == "faster" and result["rows"][1]["ms"] is None
    status, out, _ = run(capsys, "bench", "two", "--json", "-")
    assert json.loads(out) == [result]


def test_a_benchmark_that_breaks_loses_nothing(capsys, monkeypatch, tmp_path):
    def measured(self, *, quick, device):
        if self.name == "two":
            raise RuntimeError("no [room] left")
        return bench.Result(self.name, self.title, [{"ms": 1.5}], "faster", True)

    known = {name: bench.Benchmark(name, f"About {name}", name) for name in ("one", "two", "three")}
    monkeypatch.setattr(bench, "BENCHMARKS", known)
    monkeypatch.setattr(bench.Benchmark, "run", measured)
    status, out, _ = run(capsys, "bench", "--json", str(tmp_path / "found.json"))
    assert status == 1 and "broke: RuntimeError: no [room] left" in out and "About three" in out
    kept = json.loads((tmp_path / "found.json").read_text())
    assert [entry["name"] for entry in kept] == ["one", "two", "three"]
    assert "no [room] left" in kept[1]["settings"]["error"]


@pytest.mark.parametrize("stop_at", [0, 1, 37])
def test_races_that_are_stopped_are_kept(capsys, monkeypatch, tmp_path, stop_at):
    raced = []

    def race(*, pairing, heads, length, dim, training, device):
        if len(raced) == stop_at:
            raise KeyboardInterrupt
        raced.append(f"{pairing} {heads} {length} {dim} {training}")
        regret = 1.5 if len(raced) == 1 else 1.0
        return {"problem": raced[-1], "planned": "a", "fastest": "b", "regret": regret, "of admitted": regret}

    monkeypatch.setattr("heedful.bench.regret._race", race)
    path = tmp_path / "races.json"
    status, *_ = run(capsys, "bench", "regret", "--json", str(path))
    if not stop_at:
        assert status == 130 and not path.exists()
        return
    (result,) = json.loads(path.read_text())
    assert status == 0 and not result["reached"] and f"stopped after {stop_at} of 304" in result["verdict"]
    assert sorted(row["problem"] for row in result["rows"]) == sorted(raced)
    assert "worst 1.5×" in result["verdict"]
    if stop_at > 30:  # in no order of the list's
        assert {row["set"] for row in result["rows"]} == {"grid", "drawn"}


def test_bench_lists(capsys, fake_benchmarks):
    status, out, _ = run(capsys, "bench", "--list")
    assert status == 0 and "one" in out and "About two" in out and fake_benchmarks == []
    assert json.loads(run(capsys, "bench", "--list", "--json", "-")[1])[0] == {
        "name": "one",
        "title": "About one",
    }
    status, _, err = run(capsys, "bench", "tow")
    assert status == 2 and "did you mean 'two'?" in err


def test_the_real_benchmarks_are_listed(capsys):
    status, out, _ = run(capsys, "bench", "--list")
    assert status == 0 and all(name in out for name in bench.BENCHMARKS)


# The command itself


def test_as_a_program(tmp_path):
    command = [sys.executable, "-m", "heedful"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run([*command, "explane"], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2 and "did you mean" in done.stderr
    done = subprocess.run(
        [*command, "explain", "--queries", "64"], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0 and "→" in done.stdout and "\x1b" not in done.stdout and done.stderr == ""
    done = subprocess.run(
        [*command, "bench", "--list", "--json", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1  # a folder is no file to write to
