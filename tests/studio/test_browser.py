"""The studio as a person meets it: Chromium, a server, runs in processes of their own."""

from __future__ import annotations

import http.server
import os
import re
import signal
import threading

import pytest
import torch
from serving import ENDLESS, Server, chromium, trained, until

from heedful import data, lab
from heedful.studio.jobs import Jobs

playwright = pytest.importorskip("playwright.sync_api", reason="the browser's tests need playwright")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="there is no Chromium here: apt-get install chromium"
)


def harmless(line) -> bool:
    """plotly asks for styles inline, too; the policy refuses them, and the browser says so."""
    refused = "Content Security Policy" in line.text and line.location["url"].endswith("/static/plotly.js")
    return refused or "net::ERR_" in line.text  # servers that are ended on purpose


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    runs = tmp_path_factory.mktemp("browser") / "runs"
    return runs, trained(runs)


@pytest.fixture(scope="module")
def server(store):
    server = Server(store[0])
    yield server
    server.close()


@pytest.fixture(scope="module")
def chrome():
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=chromium(), args=options)
        yield browser
        browser.close()


@pytest.fixture
def visit(chrome, server):
    """Open a page in a window of its own; whatever its console complains of fails the test."""
    contexts, said = [], []

    def visit(path: str = "/", **options):
        context = chrome.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(90_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: line.type != "error" or harmless(line) or said.append(line.text))
        page.goto(server.address)
        if path != "/":
            page.goto(server.home + path)
        return page

    visit.said = said
    yield visit
    for context in contexts:
        context.close()
    assert not said, said


def in_state(page, state: str) -> None:
    page.wait_for_selector(f"#run[data-state={state}]")


def step(page) -> int:
    """How far the first curve has come, as its description tells."""
    label = page.locator("#curves .curve [role=img]").first.get_attribute("aria-label") or ""
    return max(map(int, re.findall(r" after (\d+)", label)), default=-1)


def drawn(page) -> str:
    """The heat map's pixels."""
    page.wait_for_selector("#looking[aria-busy=false] canvas[data-part=map]")
    return page.evaluate("document.querySelector('canvas[data-part=map]').toDataURL()")


def changes(page, before: str) -> str:
    where = "#looking[aria-busy=false] canvas[data-part=map]"
    page.wait_for_function(f"before => document.querySelector('{where}')?.toDataURL() !== before", arg=before)
    return drawn(page)


def test_a_quick_run_from_the_board(visit):
    page = visit()
    page.get_by_role("button", name="Run zero-grad, quick").click()
    page.wait_for_url("**/runs/**")
    in_state(page, "done")
    assert page.locator("#curves .main-svg").count() and step(page) == 199
    rows = page.locator("#rows tbody tr")
    assert rows.count() == 6 and "–" not in rows.first.inner_text()
    page.locator("#figure img").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#figure img').naturalWidth > 0")
    page.get_by_role("link", name="Board").click()
    assert (
        "not run yet" not in page.locator("tr", has=page.get_by_role("link", name="zero-grad")).inner_text()
    )


def test_a_curve_grows_stops_and_resumes(visit):
    page = visit("/studies/zero-grad")
    page.locator("summary", has_text="More settings").click()
    page.get_by_label("problem").select_option("bowl")
    page.get_by_label("cleared").select_option("yes")
    page.get_by_label("steps").fill(ENDLESS["steps"])
    page.get_by_label("seeds").fill("1")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/runs/**")
    in_state(page, "running")
    seen = {step(page)} - {-1} if page.locator("#curves .main-svg").count() else set()
    page.wait_for_selector("#curves .main-svg")
    until(lambda: seen.add(step(page)) or len(seen) >= 3)
    page.get_by_role("button", name="Stop").click()
    in_state(page, "interrupted")
    assert "Resume goes on from there" in page.inner_text("main")
    before = page.url
    page.get_by_role("button", name="Resume").click()
    page.wait_for_url(lambda address: "/runs/" in address and address != before)
    in_state(page, "running")
    page.get_by_role("button", name="Stop").click()
    in_state(page, "interrupted")


def test_two_tabs_and_a_runner_that_is_killed(visit, server):
    run = server.begin(**ENDLESS)
    one, two = visit(f"/runs/{run.id}"), visit(f"/runs/{run.id}")
    for page in (one, two):
        in_state(page, "running")
    with lab.Store(server.runs) as store:
        os.killpg(Jobs(store).of(run).pid, signal.SIGKILL)
    for page in (one, two):
        in_state(page, "interrupted")
        assert page.get_by_role("button", name="Resume").is_visible()
    two.get_by_role("button", name="Resume").click()
    two.wait_for_url(lambda address: "/runs/" in address and run.id not in address)
    in_state(two, "running")
    two.get_by_role("button", name="Stop").click()
    in_state(two, "interrupted")


def test_a_server_that_is_started_again_finds_its_run(visit, server):
    run = server.begin(**ENDLESS)
    page = visit(f"/runs/{run.id}")
    in_state(page, "running")
    server.stop()
    page.wait_for_selector("#link:not([hidden])")
    assert "The run goes on without it" in page.inner_text("#link")
    server.start()
    page.wait_for_function("() => document.querySelector('#link').textContent.includes('printed last')")
    visit.said[:] = [line for line in visit.said if "401" not in line]  # the old token opens nothing any more
    page.goto(server.address)
    page.goto(f"{server.home}/runs/{run.id}")
    in_state(page, "running")
    page.wait_for_selector("#curves .main-svg")
    page.get_by_role("button", name="Stop").click()
    in_state(page, "interrupted")


def test_text_streams_in_with_what_it_beat_and_what_it_copied(visit):
    page = visit("/generate")
    page.get_by_label("new tokens").fill("120")
    page.get_by_label("temperature").fill("0.1")
    page.get_by_label("seed").fill("1")
    page.get_by_role("button", name="Write").click()
    page.wait_for_selector("#text .token")
    page.wait_for_function("() => document.querySelector('#told').textContent.includes('python-docs')")
    tokens = page.locator("#text .token")
    assert tokens.count() == 120
    tokens.nth(60).focus()
    assert page.locator("#beat tr.chosen").count() == 1
    shares = [
        float(share.removesuffix(" %").removeprefix("< "))
        for share in page.locator("#beat [data-name=probability]").all_inner_texts()
    ]
    assert len(shares) == 5 and shares == sorted(shares, reverse=True) and sum(shares) < 101
    copied = "".join(page.locator("#text .copied").all_inner_texts())
    assert len(copied) >= 20 and copied[:20] in data.load("python-docs").text, "it knows its page by heart"
    page.get_by_label("prompt").fill("☃")
    page.get_by_role("button", name="Write").click()
    page.wait_for_selector("#problem:not([hidden])")
    assert "☃" in page.inner_text("#problem")


def test_beta_moves_the_picture_and_neighbors_the_plan(visit):
    page = visit("/attention")
    before, plan = drawn(page), page.inner_text("#plan")
    page.locator("#beta-slider").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    after = changes(page, before)
    assert page.inner_text("#beta-now") == "2.51" and "Softmax(scale=10" in page.inner_text("#plan")
    page.get_by_label("neighbors", exact=True).select_option("causal & window")
    changes(page, after)
    assert "Window(2)" in page.inner_text("#plan") != plan


def test_attention_of_a_trained_gat(visit, store):
    page = visit("/attention")
    before = drawn(page)
    page.get_by_label("who listens").select_option(store[1]["gat"])
    before = changes(page, before)
    assert page.locator(".heads button").count() == 8 + 1 + 1, (
        "eight heads, their mean, and the last layer's one"
    )
    assert page.locator("[data-part=graph] circle").count() == 34 and "Additive" in page.inner_text("#plan")
    page.get_by_role("button", name="layer 2, head 1").click()
    page.locator("[data-part=graph] circle").nth(5).focus()
    assert "listens to" in page.inner_text("[data-part=told]")
    before = drawn(page)
    page.get_by_label("similarity").select_option("uniform")
    changes(page, before)
    assert page.get_by_role("button", name="layer 2, head 1").get_attribute("aria-pressed") == "true"


def test_attention_of_a_picture_of_ones_own(visit, store, tmp_path):
    file = tmp_path / "mine.png"
    data.save_picture(torch.randint(256, (30, 30), dtype=torch.uint8), file)
    page = visit("/attention")
    page.get_by_label("who listens").select_option(store[1]["vit"])
    page.wait_for_function(
        "() => document.querySelector('[data-part=about]').textContent.includes('the model says')"
    )
    before = drawn(page)
    page.get_by_label("or your own").set_input_files(file)
    changes(page, before)
    assert "your picture" in page.inner_text("[data-part=about]")
    (tmp_path / "large.png").write_bytes(b"\x89PNG" + b"x" * 5_000_000)
    page.get_by_label("or your own").set_input_files(tmp_path / "large.png")
    page.wait_for_selector("#problem:not([hidden])")
    assert "4 MB at most" in page.inner_text("#problem")


NAMELESS = """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, img')]
    .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim() || e.alt))
    .map((e) => e.outerHTML)"""
PAGES = ("/", "/studies/cora", "/claims", "/claims/C2.6", "/doctor", "/generate", "/attention", "/nowhere")


@pytest.mark.parametrize("width", [390, 1440])
def test_pages_fit_have_names_for_everything_and_are_reached_by_keys(visit, server, width):
    page = visit(viewport={"width": width, "height": 800}, color_scheme="dark" if width == 390 else "light")
    (run, *_) = lab.Store(server.runs).runs()
    for path in (*PAGES, f"/runs/{run.id}", f"/compare?first={run.id}&second={run.id}"):
        page.goto(server.home + path)
        if path == "/attention":
            drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        nameless = page.evaluate(NAMELESS)
        assert not nameless, path
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip", path
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('nav') !== null"), path
    visit.said[:] = [line for line in visit.said if "404" not in line]  # /nowhere is not there


def test_another_site_in_the_same_browser_gets_nowhere(visit, server):
    """Its port is another, its host the same: the browser sends our cookie along."""
    page = visit()
    evil = f"""<!doctype html><form method="post" action="{server.home}/claims/check">
      <button>Win</button></form><iframe src="{server.home}/"></iframe>"""

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(evil.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{other.server_port}/")
        read = page.evaluate(
            "url => fetch(url, {credentials: 'include'}).then(() => 'read', () => 'refused')", server.home
        )
        assert read == "refused"
        page.get_by_role("button", name="Win").click()
        page.wait_for_url("**/claims/check")
        assert "another web site" in page.inner_text("main")
        other.shutdown()
    with lab.Store(server.runs) as store:
        assert not [job for job in Jobs(store).all() if job.kind == "claims"]
    visit.said.clear()  # the browser tells at length what it refused


def test_refusals_are_clear(visit, server, chrome):
    page = visit()
    page.goto(f"{server.home}/studies/zero-grad")
    page.evaluate("document.querySelector('#seeds').removeAttribute('max')")
    page.get_by_label("seeds").fill("100000")
    page.get_by_role("button", name="Run", exact=True).click()
    assert "from 1 to 1000" in page.inner_text(".problem")
    stranger = chrome.new_context().new_page()
    assert stranger.goto(f"{server.home}/?token=wrong").status == 401
    assert "Open the whole address" in stranger.inner_text("main")
    stranger.context.close()
    visit.said[:] = [line for line in visit.said if "422" not in line]
