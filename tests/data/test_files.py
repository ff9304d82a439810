"""Files are found, fetched and checked; nothing half-written is ever taken for a file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from heedful import data
from heedful.data import files, registry

BODY = bytes(range(256)) * 2000  # several chunks


def parts(folder) -> list:
    return [path for path in folder.rglob("*") if path.is_file()]


# Finding


def test_local_comes_before_cached_comes_before_remote(cache, tmp_path, monkeypatch, entry_of):
    entry = entry_of(BODY, "http://127.0.0.1:9/none")
    (file,) = entry.files
    assert files.place(file) == files.Place(file, "remote", "http://127.0.0.1:9/none")
    kept = cache / file.path
    kept.parent.mkdir(parents=True)
    kept.write_bytes(BODY)
    assert files.place(file) == files.Place(file, "cached", str(kept))
    mine = tmp_path / "mine" / file.path
    mine.parent.mkdir(parents=True)
    mine.write_bytes(BODY)
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "mine"))
    assert files.place(file) == files.Place(file, "local", str(mine))
    kept.unlink()
    assert files.contents(entry) == {file.path: BODY}
    mine.write_bytes(BODY[:-1])
    assert files.place(file).state == "damaged"


def test_a_folder_that_is_not_there_is_told(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(data.DataError, match=r"HEEDFUL_DATA is '.*nowhere', and there is no such folder"):
        data.load("mnist")
    monkeypatch.setenv("HEEDFUL_DATA", "")
    assert files.local_folder() is None


def test_built_in_sets_need_no_folder(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "nowhere"))
    assert len(data.load("karate").labels) == 34


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda body: body[:-7], ["has 511,993 bytes, expected 512,000"]),
        (lambda body: b"", ["has 0 bytes"]),
        (lambda body: body[:5] + b"\xff" + body[6:], ["its sha256 is"]),
    ],
    ids=["truncated", "empty", "changed"],
)
def test_damage_in_the_users_folder_is_an_error(cache, tmp_path, monkeypatch, entry_of, damage, words):
    """It is named, with what was expected, and neither used, replaced nor passed over."""
    entry = entry_of(BODY, "http://127.0.0.1:9/none")
    (file,) = entry.files
    mine = tmp_path / "mine" / file.path
    mine.parent.mkdir(parents=True)
    mine.write_bytes(damage(BODY))
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "mine"))
    with pytest.raises(data.DataError) as caught:
        files.contents(entry)
    for word in [str(mine), "is damaged", file.sha256, "http://127.0.0.1:9/none", *words]:
        assert word in str(caught.value)
    assert mine.read_bytes() == damage(BODY) and not cache.exists()


# Fetching


def test_fetched_once(cache, server, entry_of):
    server.pages["/words"] = BODY
    entry = entry_of(BODY, f"{server.address}/words")
    assert files.contents(entry) == files.contents(entry) == {"toy/words.txt": BODY}
    assert server.asked == ["/words"]
    assert parts(cache) == [cache / "toy/words.txt"]


def test_damage_in_the_cache_is_mended(cache, server, entry_of):
    server.pages["/words"] = BODY
    entry = entry_of(BODY, f"{server.address}/words")
    kept = cache / "toy/words.txt"
    kept.parent.mkdir(parents=True)
    for damaged in (BODY[:100], BODY[:-1] + b"x", b""):
        kept.write_bytes(damaged)
        assert files.contents(entry) == {"toy/words.txt": BODY} and kept.read_bytes() == BODY


@pytest.mark.parametrize("fault", ["missing", "truncated", "changed", "short", "long", "refused"])
def test_the_next_mirror_is_asked(cache, server, entry_of, fault):
    bad = {
        "missing": None,
        "truncated": server.truncated(BODY),
        "changed": BODY[::-1],
        "short": BODY[:-1],
        "long": BODY + b"!" * (1 << 17),
    }
    server.pages |= {"/bad": bad.get(fault), "/good": BODY}
    first = "http://127.0.0.1:9/none" if fault == "refused" else f"{server.address}/bad"
    entry = entry_of(BODY, first, f"{server.address}/good")
    assert files.contents(entry) == {"toy/words.txt": BODY}
    assert parts(cache) == [cache / "toy/words.txt"]


def test_a_server_must_not_unpack_on_the_way(cache, server, entry_of):
    """Some serve a .gz as text that happens to be compressed; we ask for the file as it is."""
    asked = {}

    def page(handler):
        asked.update(handler.headers)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        handler.end_headers()
        handler.wfile.write(BODY)

    server.pages["/words"] = page
    files.contents(entry_of(BODY, f"{server.address}/words"))
    assert asked["Accept-Encoding"] == "identity"


def test_offline_says_what_to_do(cache, server, entry_of, tmp_path, monkeypatch):
    server.pages |= {"/cut": server.truncated(BODY), "/other": BODY[::-1]}
    addresses = [f"{server.address}/{page}" for page in ("gone", "cut", "other")] + ["http://127.0.0.1:9/no"]
    entry = entry_of(BODY, *addresses)
    (file,) = entry.files
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path))
    with pytest.raises(data.DataError) as caught:
        files.contents(entry)
    said = str(caught.value)
    reasons = ["404", "the connection broke before the end", "what came is not the file", "connection failed"]
    for address, reason in zip(addresses, reasons, strict=True):
        (line,) = [line for line in said.splitlines() if f"{address}:" in line]
        assert reason in line
    for word in ["toy/words.txt is missing", "512,000 bytes", file.sha256, str(cache), str(tmp_path)]:
        assert word in said
    assert "heedful data fetch toy" in said and "set HEEDFUL_DATA to a folder that has toy/words.txt" in said
    assert parts(cache) == []


def test_offline_with_a_damaged_copy_says_so_and_keeps_it(cache, entry_of):
    entry = entry_of(BODY, "http://127.0.0.1:9/none")
    kept = cache / "toy/words.txt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(BODY[:9])
    with pytest.raises(data.DataError, match="it has 9 bytes, expected 512,000"):
        files.contents(entry)
    assert parts(cache) == [kept]


def test_no_public_address(cache, entry_of):
    with pytest.raises(data.DataError, match="It has no public address"):
        files.contents(entry_of(BODY))


# Interrupting


FETCH = """
import sys
from pathlib import Path
from heedful.data import files, registry
cache, address, size, sha256 = sys.argv[1:]
files.cache_folder = lambda: Path(cache)
file = registry.File("toy/words.txt", int(size), sha256, (address,))
files.contents(registry.Dataset("toy", "text", "words", "formats.text:fairytales", "none", files=(file,)))
"""


def start(cache, entry) -> subprocess.Popen:
    (file,) = entry.files
    arguments = [str(cache), file.addresses[0], str(file.size), file.sha256]
    return subprocess.Popen([sys.executable, "-c", FETCH, *arguments], env=dict(os.environ))


def until(condition, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_half_way(cache, server, entry_of, how):
    server.pages["/words"] = server.stalling(BODY)
    entry = entry_of(BODY, f"{server.address}/words")
    process = start(cache, entry)
    until(lambda: any(path.stat().st_size > 0 for path in parts(cache)))
    process.send_signal(how)
    assert process.wait(60) != 0
    left = parts(cache)
    assert not (cache / "toy/words.txt").exists()
    assert all(path.name.startswith(".words.txt.") and path.suffix == ".part" for path in left)
    assert files.place(entry.files[0]).state == "remote"

    server.pages["/words"] = BODY
    for path in left:  # a day later
        os.utime(path, (time.time() - 90000,) * 2)
    assert files.contents(entry) == {"toy/words.txt": BODY}
    assert parts(cache) == [cache / "toy/words.txt"]


def test_interrupted_by_the_user(cache, server, entry_of, monkeypatch):
    """Ctrl-C leaves nothing behind at all."""

    @contextmanager
    def bar(*arguments):
        def advance(count):
            raise KeyboardInterrupt

        yield advance

    monkeypatch.setattr(files, "_bar", bar)
    server.pages["/words"] = BODY
    with pytest.raises(KeyboardInterrupt):
        files.contents(entry_of(BODY, f"{server.address}/words"))
    assert parts(cache) == []


def test_two_processes_at_once(cache, server, entry_of):
    server.pages["/words"] = server.stalling(BODY)
    entry = entry_of(BODY, f"{server.address}/words")
    both = [start(cache, entry) for _ in range(2)]
    until(lambda: len(server.asked) == 2)
    server.go_on.set()
    assert [process.wait(60) for process in both] == [0, 0]
    assert parts(cache) == [cache / "toy/words.txt"] and files.contents(entry) == {"toy/words.txt": BODY}


def test_another_process_is_not_swept_away(cache, server, entry_of):
    """A part that is being written now is somebody's work."""
    young = cache / "toy" / ".words.txt.abc.part"
    young.parent.mkdir(parents=True)
    young.write_bytes(b"half")
    server.pages["/words"] = BODY
    files.contents(entry_of(BODY, f"{server.address}/words"))
    assert young.exists()


def test_a_full_disk(cache, server, entry_of, monkeypatch):
    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files._Counted, "write", write)
    server.pages["/words"] = BODY
    with pytest.raises(data.DataError, match=r"cannot keep toy/words.txt in .*No space left.*HEEDFUL_DATA"):
        files.contents(entry_of(BODY, f"{server.address}/words"))
    assert parts(cache) == []


def test_a_cache_that_cannot_be_written(cache, server, entry_of):
    cache.write_text("a file where the folder should be")
    with pytest.raises(data.DataError, match=r"cannot keep toy/words.txt in"):
        files.contents(entry_of(BODY, f"{server.address}/words"))


# Progress


def test_the_bar_counts_what_stays(cache, server, entry_of, monkeypatch):
    counted = []

    @contextmanager
    def bar(name, total, shown):
        assert (name, total, shown) == ("toy", len(BODY), True)
        yield counted.append

    monkeypatch.setattr(files, "_bar", bar)
    server.pages |= {"/cut": server.truncated(BODY), "/good": BODY}
    files.contents(entry_of(BODY, f"{server.address}/cut", f"{server.address}/good"))
    assert sum(counted) == len(BODY) and min(counted) < 0 and len(counted) > 3


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_is_for_terminals(cache, server, entry_of, monkeypatch, capsys, terminal):
    import rich.console

    monkeypatch.setattr(rich.console.Console, "is_terminal", terminal)
    server.pages["/words"] = BODY
    files.contents(entry_of(BODY, f"{server.address}/words"))
    said = capsys.readouterr()
    assert said.out == "" and ("fetching toy" in said.err) == terminal


# By name


def test_fetch_and_where_by_name(cache, server, entry_of, monkeypatch):
    server.pages["/words"] = b"some words"
    entry = entry_of(b"some words", f"{server.address}/words")
    monkeypatch.setitem(registry.DATASETS, "toy", entry)
    assert [place.state for place in data.where("toy")] == ["remote"]
    assert data.fetch("toy") == [cache / "toy/words.txt"]
    assert [place.state for place in data.where("toy")] == ["cached"]
    assert data.load("toy").text == "some words"


def test_a_stand_in_serves_where_it_is(cache, tmp_path, monkeypatch):
    """Tiny Shakespeare without its last newline is as good as with it."""
    entry = data.describe("shakespeare")
    assert files.needed(entry) == entry.files
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path))
    assert files.needed(entry) == entry.files
    (tmp_path / "text").mkdir()
    (tmp_path / entry.stand_in.path).write_text("not he")
    assert files.needed(entry) == (entry.stand_in,)
    with pytest.raises(data.DataError, match="is damaged"):
        data.load("shakespeare")
