"""Work in processes of its own: started, watched, stopped, killed, resumed, and none of it lost."""

from __future__ import annotations

import os
import signal
import time

from visiting import browser, events, text

from heedful import lab
from heedful.studio.jobs import Jobs


def until(there, seconds=90):
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def started(studio, study: str, **sent) -> str:
    """The name of the run that a form starts."""
    answer = studio.post(f"/studies/{study}/run", data=sent)
    return followed(studio, answer)


def followed(studio, answer) -> str:
    assert answer.status_code == 200, text(answer)
    address = answer.url.path

    def there():
        found = studio.get(address).url.path
        return found if found.startswith("/runs/") else None

    return until(there).removeprefix("/runs/")


def test_a_run_is_watched_to_its_end(studio, runs):
    run = started(studio, "zero-grad", profile="quick", seeds="2", **{"set.problem": "bowl"})
    seen = events(studio, run)
    assert seen[-1]["state"] == "done" and seen[-1]["done"] == 4
    assert [now["done"] for now in seen] == sorted(now["done"] for now in seen)
    assert {line["label"] for line in seen[-1]["pictures"][0]["lines"]} == {"bowl yes", "bowl no"}
    until(lambda: not Jobs(lab.Store(runs)).alive(lab.Store(runs).run(run)))
    assert studio.get(f"/runs/{run}/figure.png").content.startswith(b"\x89PNG")
    refused = studio.post(f"/runs/{run}/stop")
    assert refused.status_code == 409 and "not running any more" in text(refused)


def test_stopped_killed_and_resumed_even_by_another_server(studio, runs):
    long = {
        "profile": "quick",
        "seeds": "1",
        "set.problem": "bowl",
        "set.cleared": "yes",
        "set.steps": "1000000",
    }
    run = started(studio, "zero-grad", **long)
    assert "running" in text(studio.get(f"/runs/{run}"))
    busy = studio.post(f"/runs/{run}/resume")
    assert busy.status_code == 409 and "at work already" in text(busy)
    with lab.Store(runs) as store, browser(runs) as other:  # the server was started again
        until(lambda: any(store.curves(trial) for trial in store.trials(store.run(run))))
        before = store.trials(store.run(run))[0]
        assert other.post(f"/runs/{run}/stop").status_code == 200
        until(lambda: store.trials(store.run(run))[0].status == "interrupted")
        until(lambda: events(other, run)[-1]["state"] == "interrupted")
        assert "was interrupted" in text(other.get(f"/runs/{run}"))
        second = followed(other, other.post(f"/runs/{run}/resume"))
        assert second != run
        until(lambda: store.trials(store.run(second))[0].status == "running")
        assert store.trials(store.run(second))[0].id == before.id, "it goes on where it stopped"
        job = Jobs(store).of(store.run(second))
        os.killpg(job.pid, signal.SIGKILL)
        until(lambda: events(other, second)[-1]["state"] == "interrupted")


def test_what_a_terminal_began_is_stopped_there(studio, runs):
    run = lab.run(
        "zero-grad", store=runs, profile="quick", seeds=1, settings={"problem": "bowl"}, backend="loop"
    ).run
    refused = studio.post(f"/runs/{run.id}/stop")
    assert refused.status_code == 409 and "where it was started" in text(refused)


def test_a_process_that_cannot_begin_is_told(studio, runs):
    job = Jobs(lab.Store(runs)).run("no-such-study", "quick", {})
    until(lambda: not job.alive)
    found = text(studio.get(f"/jobs/{job.id}"))
    assert "did not start" in found and "no-such-study" in found


def test_a_claim_is_measured(studio):
    answer = studio.post("/claims/B4.1/check")
    until(lambda: studio.get(answer.url.path).url.path == "/claims/B4.1")
    assert "holds" in text(studio.get("/claims/B4.1"))
