"""Texts: UTF-8, every character a symbol."""

from __future__ import annotations

from pathlib import Path

from ..kinds import TextData


def read(data: bytes, name: str) -> TextData:
    """The text in a file, byte order mark and all."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8: {error}") from error
    if not text:
        raise ValueError(f"{name}: is empty")
    return TextData(name, text)


def text_file(path: str | Path) -> TextData:
    """A text of your own, UTF-8.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "verse.txt"; _ = path.write_text("abacab")
    >>> text_file(path)
    TextData(verse.txt: 6 characters, 3 symbols)
    """
    path = Path(path).expanduser()
    return read(path.read_bytes(), path.name)


def fairytales(files: dict[str, bytes]) -> TextData:
    """Grimms' Fairy Tales; the byte order mark at its beginning is one of the 87 symbols."""
    (data,) = files.values()
    return read(data, "fairytales")


def shakespeare(files: dict[str, bytes]) -> TextData:
    """Tiny Shakespeare. Copies differ in a final newline; here it has none."""
    (data,) = files.values()
    return read(data.removesuffix(b"\n"), "shakespeare")
