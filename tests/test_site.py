"""The documentation as a site: built without a network, all links lead somewhere, `heedful docs` shows it."""

from __future__ import annotations

import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from heedful import claims, cli, lab
from heedful.commands import docs
from heedful.doctor import KINDS

ROOT = Path(__file__).resolve().parents[1]
LOADED = r'<(?:script|img|source|iframe|link)\b[^>]*?\s(?:src|href)="([^"]*)"'
LED_TO = r'<a\b[^>]*?\shref="([^"]*)"'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built once a run of the tests, whichever worker comes first; the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / "site", shared / "site.done"
    try:
        (shared / "site.begun").touch(exist_ok=False)
    except FileExistsError:
        end = time.monotonic() + 600
        while not done.exists():
            assert time.monotonic() < end, "the worker that builds the site did not finish"
            time.sleep(0.5)
    else:
        try:
            # Whoever asks for a network is sent where nobody answers.
            environment = {
                **os.environ,
                "http_proxy": "http://127.0.0.1:9",
                "https_proxy": "http://127.0.0.1:9",
            }
            command = [sys.executable, str(ROOT / "docs" / "site"), str(folder)]
            built = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=base)
            (shared / "site.said").write_text(built.stdout + built.stderr, encoding="utf-8")
        finally:
            done.touch()
    assert (folder / "index.html").exists(), (shared / "site.said").read_text(encoding="utf-8")
    return folder


def pages(site: Path) -> dict[str, str]:
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")
    }


def test_there_is_a_page_for_each(site):
    from heedful import models

    found = set(pages(site))
    assert {f"claims/{id}.html" for id in claims.claims() if id[0] in "ABCDE"} <= found
    assert {
        f"findings/{name}.html" for name in KINDS if (ROOT / f"docs/findings/{name}.md").exists()
    } <= found
    ours = [name for name, study in lab.studies().items() if study.settings.__module__.startswith("heedful.")]
    assert ours and {f"studies/{name}.html" for name in ours} <= found
    assert {
        f"ideas/{name}.html"
        for name in ("line", "similarities", "neighbors", "positions", "strategies", "planner")
    } <= found
    shown = "".join(text for path, text in pages(site).items() if path.startswith("architectures/"))
    assert [name for name in models.__all__ if f"#heedful.models.{name}" not in shown] == []
    assert {"index.html", "tour.html", "map.html", "teaching.html", "measuring.html"} <= found


def test_nothing_leads_nowhere_or_out(site):
    """Scripts, styles and pictures are the site's own; links in it have a file, and their anchor."""
    texts = pages(site)
    anchors = {
        path: {unescape(id) for id in re.findall(r'\sid="([^"]+)"', text)} for path, text in texts.items()
    }
    wrong = []
    for path, text in texts.items():
        if path == "404.html":  # its links are from the root, for it may stand anywhere
            continue
        loaded = re.findall(LOADED, text)
        wrong += [f"{path} loads {link}" for link in loaded if re.match(r"(https?:)?//", link)]
        for link in {*loaded, *re.findall(LED_TO, text)}:
            target, _, anchor = unescape(unquote(link)).partition("#")
            if re.match(r"[a-z]+:|//", target):
                continue
            place = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            place = "index.html" if place == "." else place
            if not (site / place).is_file():
                wrong.append(f"{path} → {link}")
            elif anchor and not anchor.startswith("__") and place in anchors and anchor not in anchors[place]:
                wrong.append(f"{path} → {link}: no such anchor")
    assert sorted(wrong) == []


def test_the_reference_has_every_public_name(site):
    reference = runpy.run_path(str(ROOT / "docs/site/__main__.py"), run_name="site")["of_reference"]
    texts = pages(site)
    for room in reference.ROOMS:
        text = texts[f"reference/{reference.short(room)}.html"]
        missing = [name for name in reference.told(room) if f'id="{room}.{name}"' not in text]
        assert missing == [], f"{room}: {missing}"
    command_line = texts["reference/commands.html"]
    assert [verb for verb in cli.VERBS if f"heedful {verb}" not in command_line] == []


def test_a_broken_link_fails(tmp_path):
    """That the build is strict is not taken on trust."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[there](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: small\n")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0 and "does not exist" in done.stdout + done.stderr


def test_it_is_served_to_this_machine_alone(site):
    with docs.server(site) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        host, port = serving.server_address[:2]
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ideas/line.html") as answer:
            assert answer.status == 200 and b"The line" in answer.read()
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"GET /../../../../etc/passwd HTTP/1.0\r\n\r\n")
            assert b" 404 " in line.recv(100)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/no-such-page.html")
        serving.shutdown()


def test_the_command_prints_an_address_and_serves(site, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from heedful.commands import docs; from heedful.cli import main\n"
        f"docs.SITE, docs.ROOT = Path({str(site)!r}), Path({str(tmp_path)!r})\n"
        "sys.exit(main(['docs', '--port', '0', '--no-open']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
            with urllib.request.urlopen(address) as answer:
                assert b"heedful" in answer.read()
        finally:
            process.terminate()


def test_installed_without_pages_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(docs, "SITE", tmp_path / "site")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    assert cli.main(["docs", "--no-open"]) == 2
    said = capsys.readouterr().err
    assert "installed without its pages" in said and "make docs" in said and "make wheel" in said
    assert cli.main(["docs", "--build"]) == 2 and "clone" in capsys.readouterr().err
    assert cli.main(["docs", "--port", "70000"]) == 2 and "0 to 65535" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "index.html").write_text("here")
    monkeypatch.setattr(docs, "SITE", tmp_path)
    monkeypatch.setattr(docs, "ROOT", tmp_path / "elsewhere")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["docs", "--no-open", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port 0" in capsys.readouterr().err


def test_pages_are_built_anew_where_something_is_newer(tmp_path):
    site, page = tmp_path / "site", tmp_path / "docs" / "page.md"
    for path in (site / "index.html", page):
        path.parent.mkdir()
        path.touch()
    os.utime(page, (1, 1))
    assert not docs.outdated(site, tmp_path)
    os.utime(page, (2e9, 2e9))
    assert docs.outdated(site, tmp_path) and docs.outdated(tmp_path / "none", tmp_path)


def test_wheels_have_the_pages():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "site/**/*" in project["tool"]["setuptools"]["package-data"]["heedful"]
    made = runpy.run_path(str(ROOT / "docs/site/__main__.py"), run_name="site")["SITE"]
    assert made == docs.SITE.resolve()
