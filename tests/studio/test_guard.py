"""Who is let in, and who is not."""

from __future__ import annotations

import socket

import pytest
from visiting import HOME, PORT, TOKEN, browser

from heedful import cli

STRANGER = "http://evil.example"


@pytest.fixture
def unknown(runs):
    """A browser that was never shown the token."""
    with browser(runs, token=None) as client:
        yield client


def test_the_token_is_asked_for_and_kept_as_a_cookie(unknown):
    refused = unknown.get("/")
    assert refused.status_code == 401 and "heedful studio printed" in refused.text
    wrong = unknown.get("/", params={"token": TOKEN[:-1]})
    assert wrong.status_code == 401 and "not this studio" in wrong.text and not unknown.cookies
    right = unknown.get("/claims", params={"token": TOKEN, "page": "2"}, follow_redirects=False)
    assert right.status_code == 303 and right.headers["location"] == "/claims?page=2"
    kept = right.headers["set-cookie"]
    assert "HttpOnly" in kept and "SameSite=Lax" in kept and f"heedful-{PORT}=" in kept
    assert unknown.get("/").status_code == 200


def test_the_token_does_not_send_elsewhere(unknown):
    found = unknown.get(f"{HOME}//evil.example/", params={"token": TOKEN}, follow_redirects=False)
    assert not found.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize(
    "cookie", ["", "heedful-8517=", "heedful-8517=wrong", "heedful-9999=" + TOKEN, "é=;;="]
)
def test_other_cookies_do_not_open(unknown, cookie):
    assert unknown.get("/", headers={"Cookie": cookie.encode("latin-1")}).status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "127.0.0.1", f"127.0.0.1.evil.example:{PORT}"],
)
def test_a_foreign_host_is_refused(studio, host):
    """A name that its owner made to point to 127.0.0.1."""
    found = studio.get("/", headers={"Host": host})
    assert found.status_code == 421 and "Not this host" in found.text


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}"])
def test_the_machine_has_several_names(studio, host):
    found = studio.get("/doctor", headers={"Host": host, "Origin": f"http://{host}"})
    assert found.status_code == 200


@pytest.mark.parametrize("origin", [STRANGER, "null", "https://127.0.0.1:8517", "http://127.0.0.1:9999", ""])
def test_a_foreign_origin_is_refused(studio, runs, origin):
    for method, address in (("POST", "/studies/zero-grad/run"), ("GET", "/"), ("POST", "/claims/check")):
        found = studio.request(method, address, headers={"Origin": origin})
        assert found.status_code == 403 and "another web site" in found.text
    assert not list(runs.glob("studio/*"))


def test_a_form_without_an_origin_is_refused(runs):
    with browser(runs, origin=None) as client:
        assert client.get("/doctor").status_code == 200
        assert client.post("/claims/check").status_code == 403


def test_other_sites_may_link_here_but_not_embed_or_fetch(studio):
    told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert studio.get("/doctor", headers=told).status_code == 200
    for mode in ("no-cors", "cors"):
        assert studio.get("/doctor", headers={**told, "Sec-Fetch-Mode": mode}).status_code == 403
    assert studio.post("/claims/check", headers=told).status_code == 403


def test_elsewhere_it_answers_to_addresses_in_numbers(runs):
    with browser(runs, hosts=("lab-machine",)) as client:
        for host in (f"lab-machine:{PORT}", f"192.168.1.7:{PORT}", f"[fe80::1]:{PORT}"):
            assert (
                client.get(
                    "/static/report.css", headers={"Host": host, "Origin": f"http://{host}"}
                ).status_code
                == 200
            )
        assert client.get("/", headers={"Host": f"evil.example:{PORT}"}).status_code == 421


@pytest.mark.parametrize("address", ["/", "/nowhere", "/static/run.js", "/static/plotly.js", "/claims/A9.9"])
def test_every_answer_has_the_policy(studio, unknown, address):
    for client in (studio, unknown):
        found = client.get(address)
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"


def test_no_page_has_inline_script_or_style(studio):
    import re

    for address in ("/", "/studies/padding", "/claims", "/claims/C2.6", "/doctor", "/nowhere"):
        text = studio.get(address).text
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
        assert all("src=" in tag or "application/json" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize(
    "address",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fcli.py", "/static//etc/passwd",
        "/runs/..%2f..%2fetc/figure.png", "/runs/%2e%2e/figure.png", "/doctor/..%2fsecret", "/doctor/%2e%2e",
        "/jobs/..%2f..%2fetc%2fpasswd", "/jobs/job-../../x", "/claims/..%2fx", "/studies/..%2fx",
    ],
)  # fmt: skip
def test_no_path_leads_out(studio, runs, address):
    (runs / "secret.json").write_text('{"a": "secret word"}')
    found = studio.get(address)
    assert found.status_code == 404 and "secret word" not in found.text and "import" not in found.text


def test_what_is_too_large_or_no_form_is_refused(studio):
    assert studio.post("/studies/padding/run", content=b"a=" + b"x" * 100_000).status_code == 413
    assert studio.post("/studies/padding/run", content=b"\xff\xfe").status_code == 422
    assert (
        studio.post("/studies/padding/run", content="&".join(f"a{n}=1" for n in range(500))).status_code
        == 422
    )


def test_errors_are_pages_that_say_what_to_do(studio):
    found = studio.get("/studies/paddin")
    assert found.status_code == 404 and "padding" in found.text
    assert studio.get("/claims/C2.66").status_code == 404
    assert studio.delete("/").status_code == 405
    assert studio.get("/docs").status_code == studio.get("/openapi.json").status_code == 404


def test_listening_elsewhere_needs_a_flag(capsys):
    assert cli.main(["studio", "--host", "0.0.0.0"]) == 2
    said = capsys.readouterr().err
    assert "--let-others-in" in said and "unencrypted" in said
    assert cli.main(["studio", "--port", "70000"]) == 2


def test_a_port_that_is_taken_is_told(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["studio", "--port", str(port), "--runs", str(tmp_path)]) == 2
    assert "--port 0" in capsys.readouterr().err
