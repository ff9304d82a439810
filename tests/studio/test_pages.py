"""What the pages show of a store, and what their forms take."""

from __future__ import annotations

import html
import json
import re

import pytest
import toys  # noqa: F401
from visiting import browser, events, text

from heedful import claims, lab
from heedful.commands.claims import keep
from heedful.studio import forms, live
from heedful.studio.jobs import Jobs, written


def test_an_empty_board_lists_everything(studio):
    found = studio.get("/")
    assert found.status_code == 200
    for name, study in lab.studies().items():
        assert f'href="/studies/{name}"' in found.text and study.question in text(found)
        assert f'action="/studies/{name}/run"' in found.text
    assert all(f'href="/claims/{id}"' in found.text for id in claims.claims())
    assert "not run yet" in found.text and "None measured yet" in found.text


def test_the_board_shows_results_beside_what_was_published(studio, runs):
    lab.run("toy-line", store=runs, backend="loop", seeds=4)
    found = text(studio.get("/"))
    assert "5 ± 0.1" in found and "of 1 published figures: 1 reproduced" in found


@pytest.mark.parametrize("name", [name for name in lab.studies() if not name.startswith("toy-")])
def test_every_study_has_a_form(studio, name):
    found = studio.get(f"/studies/{name}")
    assert found.status_code == 200
    labels = set(re.findall(r'<label for="([^"]+)"', found.text))
    fields = set(re.findall(r'<(?:select|input)[^>]* id="([^"]+)"', found.text))
    assert fields <= labels, "every field has a label"
    assert {f"set.{entry.name}" for entry in forms.form(lab.find(name))} <= fields
    # Defaults as a form shows them are what the study takes.
    shown = {entry.name: entry.default for entry in forms.form(lab.find(name)) if entry.default != "every"}
    lab.find(name).checked(shown)


@pytest.mark.parametrize(
    "sent, said",
    [
        ({"set.epoch": "3"}, "has no setting 'epoch', did you mean|has no setting 'epoch'"),
        ({"set.steps": "many"}, "takes a whole number"),
        ({"set.slope": "stepp"}, "is one of flat, steep"),
        ({"set.wide": "perhaps"}, "yes or no"),
        ({"seeds": "0"}, "from 1 to 1000"),
        ({"seeds": "1e3"}, "from 1 to 1000"),
        ({"seeds": "5000"}, "from 1 to 1000"),
        ({"profile": "huge"}, "one of quick, full"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"set.steps": "0"}, "it takes a whole number of 1 or more"),
        ({"set.rate": "nan"}, "it takes a finite number"),
        ({"runs": "/tmp"}, "no option 'runs'"),
        ({"--figure": "/tmp/x.png"}, "no option '--figure'"),
    ],
)
def test_wrong_options_are_told_and_start_nothing(studio, runs, sent, said):
    found = studio.post("/studies/toy-line/run", data=sent)
    assert found.status_code == 422 and re.search(said, text(found))
    assert not list(runs.glob("studio/*"))


@pytest.mark.parametrize("value", ["/etc/passwd", "../x", "~", "a/b", "..", "C:\\x"])
def test_no_setting_names_a_file(studio, runs, value):
    found = studio.post("/studies/fairytales/run", data={"set.text": value})
    assert found.status_code == 422 and "the page reads none" in text(found)
    assert not list(runs.glob("studio/*"))


def test_a_form_is_read_as_the_study_reads_it():
    asked = forms.read(
        lab.find("toy-line"),
        {"profile": "quick", "seeds": " 7 ", "set.steps": "3", "set.rate": "", "again": "yes"},
    )
    assert asked == forms.Asked("quick", 7, {"steps": 3}, "cpu", True)
    study = lab.find("toy-line")
    given = {"wide": True, "limit": None, "tags": ("a", "b"), "slope": "steep", "rate": 0.25}
    assert study.checked({name: written(value) for name, value in given.items()}) == given


def test_a_finished_run_is_shown_whole(studio, runs):
    result = lab.run("toy-line", store=runs, backend="loop", seeds=3)
    page = studio.get(f"/runs/{result.run.id}")
    assert page.status_code == 200 and "6 of 6 trials" in page.text
    for row in result.rows():
        assert all(str(cell) in text(page) for cell in row.values() if cell is not None)
    (last,) = events(studio, result.run.id)
    assert last["state"] == "done" and last["done"] == last["total"] == 6 and last["left"] is None
    (picture,) = last["pictures"]
    steep = picture["lines"][1]
    assert steep["label"] == "steep" and steep["seeds"] == 3
    assert steep["points"] == [[step, step, step, step] for step in range(5)]
    image = studio.get(f"/runs/{result.run.id}/figure.png")
    assert image.headers["content-type"] == "image/png" and image.content.startswith(b"\x89PNG")
    assert studio.get(f"/runs/{result.run.id[:-2]}").status_code == 404, "a part of a name is no address"


def test_failed_trials_are_told(studio, runs):
    run = lab.run("toy-trouble", store=runs, backend="loop", seeds=2, settings={"kind": "raises"}).run
    (last,) = events(studio, run.id)
    assert last["state"] == "failed" and last["failed"] == 1
    assert "one is a bad seed" in text(studio.get(f"/runs/{run.id}"))


def test_words_of_a_store_are_never_html(studio, runs):
    bad = "</script><img src=x onerror=alert(1)>"
    run = lab.run("toy-line", store=runs, backend="loop", seeds=1, settings={"tags": bad}).run
    for address in (f"/runs/{run.id}", "/studies/toy-line"):
        found = studio.get(address)
        assert found.status_code == 200 and "<img src=x" not in found.text


def test_two_runs_are_compared_by_seed(studio, runs):
    one, two = (
        lab.run("toy-line", store=runs, backend="loop", seeds=3, settings={"steps": n}).run for n in (3, 4)
    )
    found = studio.get("/compare", params={"first": one.id, "second": two.id})
    assert found.status_code == 200 and "steep" in text(found) and "paired by seed" in text(found)
    other = lab.run("toy-trouble", store=runs, backend="loop", seeds=1, settings={"kind": "fine"}).run
    assert "nothing to pair" in text(studio.get("/compare", params={"first": one.id, "second": other.id}))
    assert studio.get("/compare", params={"first": one.id, "second": "../x"}).status_code == 404
    assert studio.get("/compare").status_code == 422


def test_claims_are_shown_as_they_were_measured(studio, runs):
    verdicts = [claims.check(id, seeds=1) for id in ("A2.3", "B4.1")]
    keep(verdicts, runs)
    found = text(studio.get("/claims"))
    assert "2 claims: 1 hold, 1 hold with a correction." in found
    for verdict in verdicts:
        page = text(studio.get(f"/claims/{verdict.id}"))
        shown = [verdict.statement, verdict.verdict, *map(str, verdict.evidence), verdict.corrected or ""]
        assert all(" ".join(part.split()) in " ".join(page.split()) for part in shown)
        assert f"def {claims.find(verdict.id).measure.__name__}" in page
    assert studio.get("/claims/B4.1/figure.png").status_code == 404, "numbers say it all"
    assert "not measured yet" in text(studio.get("/claims/C2.6"))


def test_reports_of_the_doctor_are_read_only(studio, runs):
    from heedful.doctor.findings import finding
    from heedful.doctor.report import Report

    assert "heedful doctor" in text(studio.get("/doctor"))
    from heedful.doctor.kinds import KINDS

    name = next(iter(KINDS))
    report = Report(
        [finding(name, 0.5, "something <b>odd</b> was seen")], steps=3, losses=[1.0, 0.5], subject="train.py"
    )
    (runs / "doctor").mkdir()
    (runs / "doctor" / "mine.json").write_text(json.dumps(report.to_dict()))
    (runs / "doctor" / "other.json").write_text("[1]")
    listed = text(studio.get("/doctor"))
    assert report.headline() in listed and "no report" in listed
    page = studio.get("/doctor/mine")
    assert (
        "<b>odd" not in page.text
        and KINDS[name].title in text(page)
        and "<b>odd</b>" in html.unescape(page.text)
    )
    assert studio.get("/doctor/other").status_code == studio.get("/doctor/none").status_code == 404


def test_bands_are_means_and_deviations_and_thin_out():
    curves = [[(step, step * slope) for step in range(1000)] for slope in (1.0, 3.0)]
    found = live.band(curves)
    assert len(found) <= live.POINTS and found[0][0] == 0 and found[-1][0] == 999
    for step, mean, low, high in found:
        assert mean == 2 * step and high - mean == pytest.approx(step * 2**0.5) == mean - low
    assert live.band([[(0, float("nan")), (1, 1e300)], [(1, -1e300)]]) == [[1, 0.0, 0.0, 0.0]]


def test_a_broken_store_is_told(runs):
    with browser(runs) as client:
        run = lab.run("toy-line", store=runs, backend="loop", seeds=1).run
    from fastapi.testclient import TestClient

    quiet = TestClient(
        client.app, base_url=client.base_url, raise_server_exceptions=False, cookies=client.cookies
    )
    for file in runs.glob("lab.sqlite*"):
        file.write_bytes(b"no database" * 1000)
    found = quiet.get(f"/runs/{run.id}")
    assert found.status_code == 503 and "cannot read" in found.text
    assert "default-src 'none'" in found.headers["content-security-policy"]


def test_jobs_have_a_limit(runs, monkeypatch):
    from heedful.studio import jobs

    monkeypatch.setattr(jobs, "MOST", 0)
    with pytest.raises(ValueError, match="at work already"):
        Jobs(lab.Store(runs)).run("toy-line", "quick", {})
