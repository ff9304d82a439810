"""Files in a tar, read in memory: nothing is written, no link is followed."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Collection


def members(data: bytes, paths: Collection[str], name: str = "tar") -> dict[str, bytes]:
    """The contents of some plain files in a tar, gzipped or not, in one pass."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                if entry.name in paths and entry.isreg():
                    inside = archive.extractfile(entry)
                    assert inside is not None  # so for every plain file
                    found[entry.name] = inside.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from error
    if missing := [path for path in paths if path not in found]:
        raise ValueError(f"{name}: has no file {', '.join(missing)}")
    return found
