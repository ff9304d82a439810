"""Finding a file: the folder HEEDFUL_DATA names, then the cache, then its public address. Checked always.

What is fetched is written beside its place under another name, checked, and moved there in one step: no
reader ever sees half a file, whatever is interrupted, and two processes may fetch the same at once.
A damaged file in the cache is ours, and is fetched again; one in HEEDFUL_DATA is yours, and is an error.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from .registry import Dataset, File, readable


class DataError(OSError):
    """A file that is missing or damaged: which, what was expected, how to get it."""


@dataclass(frozen=True)
class Place:
    """Where a file is, or would come from: "local" (HEEDFUL_DATA), "cached", "remote" or "damaged"."""

    file: File
    state: str
    at: str


def cache_folder() -> Path:
    """Where fetched files are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("heedful") / "data"


def local_folder() -> Path | None:
    """The folder HEEDFUL_DATA names, if it does."""
    named = os.environ.get("HEEDFUL_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"HEEDFUL_DATA is {named!r}, and there is no such folder. Correct or unset it.")
    return folder


def needed(entry: Dataset) -> tuple[File, ...]:
    """The files `load` would read: the stand-in if HEEDFUL_DATA has it, else all of them."""
    folder = local_folder()
    if entry.stand_in and folder and (folder / entry.stand_in.path).exists():
        return (entry.stand_in,)
    return entry.files


def place(file: File) -> Place:
    """Where a file is by its name and size, without reading it."""
    folder = local_folder()
    for state, root in (("local", folder), ("cached", cache_folder())):
        path = root / file.path if root else None
        if path and path.exists():
            whole = path.stat().st_size == file.size
            return Place(file, state if whole else "damaged", str(path))
    return Place(file, "remote", file.addresses[0] if file.addresses else "")


def contents(entry: Dataset, *, progress: bool = True) -> dict[str, bytes]:
    """Every file's bytes by path, checked; what is missing is fetched, with a bar on the terminal."""
    every = needed(entry)
    found = {file.path: _read(file) for file in every}
    missing = [file for file in every if found[file.path] is None]
    if missing:
        with _bar(entry.name, sum(file.size for file in missing), progress) as advance:
            for file in missing:
                found[file.path] = _download(entry, file, advance)
    return {path: data for path, data in found.items() if data is not None}


def _read(file: File) -> bytes | None:
    """The file's bytes if there is a whole copy; a damaged one in the user's own folder is theirs to mend."""
    found = place(file)
    if found.state == "remote":
        return None
    data = Path(found.at).read_bytes()
    wrong = _wrong(data, file)
    if wrong and Path(found.at) != cache_folder() / file.path:
        source = f" ({file.addresses[0]})" if file.addresses else ""
        raise DataError(
            f"{found.at} is damaged: {wrong}. Replace it by a good copy{source}, or move it away and it "
            "will be fetched."
        )
    return None if wrong else data


def _wrong(data: bytes, file: File) -> str:
    """What is not as expected, or nothing."""
    if len(data) != file.size:
        return f"it has {len(data):,} bytes, expected {file.size:,} (sha256 {file.sha256})"
    found = hashlib.sha256(data).hexdigest()
    return "" if found == file.sha256 else f"its sha256 is {found}, expected {file.sha256}"


def _download(entry: Dataset, file: File, advance: Callable[[int], Any]) -> bytes:
    """Fetch a file into the cache from the first address that has it; its bytes."""
    target = cache_folder() / file.path
    failures = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        for address in file.addresses:
            try:
                return _attempt(address, file, target, advance)
            except _Failure as failure:
                failures.append(f"  {address}: {failure}")
    except OSError as error:
        raise DataError(
            f"{entry.name}: cannot keep {file.path} in {cache_folder()}: {error}. Make room or give "
            "access there, or set HEEDFUL_DATA to a folder that has it."
        ) from error
    raise DataError(_missing(entry, file, target, failures))


class _Failure(Exception):
    """Why an address did not do."""


def _attempt(address: str, file: File, target: Path, advance: Callable[[int], Any]) -> bytes:
    import pooch
    import requests

    # Identity: a server must not unpack a .gz on the way, and lengths are those of the file.
    fetch = pooch.HTTPDownloader(chunk_size=1 << 16, headers={"Accept-Encoding": "identity"})
    with NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
    ) as part:
        counted = _Counted(part, file.size, advance)
        try:
            fetch(address, counted, None)
            part.flush()
            os.fsync(part.fileno())
            part.close()  # Windows moves closed files only
            data = Path(part.name).read_bytes()
            if wrong := _wrong(data, file):
                raise _Failure(f"what came is not the file: {wrong}")
            os.replace(part.name, target)
            return data
        except _Failure:
            counted.undo()
            raise
        except requests.RequestException as error:
            counted.undo()
            raise _Failure(_reason(error)) from error
        finally:
            part.close()
            Path(part.name).unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    """What went wrong on the way, without the library's inner workings."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke before the end"
    if isinstance(error, requests.ConnectionError):
        return "the connection failed"
    return str(error)


class _Counted:
    """A file that reports what is written to it, and takes no more than it should."""

    def __init__(self, file, size: int, advance: Callable[[int], Any]):
        self.file, self.size, self.advance, self.written = file, size, advance, 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self.advance(len(data))
        if self.written > self.size:
            raise _Failure(f"what came is not the file: it has more than the {self.size:,} bytes expected")
        self.file.write(data)

    def flush(self) -> None:
        pass  # pooch asks for it after every chunk

    def undo(self) -> None:
        self.advance(-self.written)


def _sweep(folder: Path, age: float = 86400.0) -> None:
    """Remove what a killed process left behind a day or longer ago; younger parts may be another's work."""
    for part in folder.glob(".*.part"):
        try:
            if time.time() - part.stat().st_mtime > age:
                part.unlink()
        except FileNotFoundError:
            pass  # finished or swept by another process meanwhile


def _missing(entry: Dataset, file: File, target: Path, failures: list[str]) -> str:
    damaged = f" (there is {target}, but {_wrong(target.read_bytes(), file)})" if target.exists() else ""
    folder = local_folder()
    looked = f"HEEDFUL_DATA, which is {folder}, nor in " if folder else ""
    lines = [
        f"{entry.name}: {file.path} is missing{damaged}.",
        f"Expected {file.size:,} bytes with sha256 {file.sha256}; not in {looked}{cache_folder()}.",
    ]
    lines += ["Could not fetch it:", *failures] if failures else ["It has no public address."]
    lines.append(
        f"Run `heedful data fetch {entry.name}` where there is a network ({readable(entry.size)}), or set "
        f"HEEDFUL_DATA to a folder that has {file.path}."
    )
    return "\n".join(lines)


@contextmanager
def _bar(name: str, total: int, shown: bool):
    """A function that takes how many bytes came, and draws them if there is a terminal to draw on."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("fetching {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not (shown and console.is_terminal)
    ) as bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)
