"""The state of a training in one file: whole or not there, whatever happens while it is written.

A file is written beside its place, flushed to disk, then renamed. The last two are kept, each with a
checksum, so that a file damaged later costs the steps since the one before and no more. Nothing in it is ever
executed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .packing import pack, unpack

FORMAT = 1
_HEADER = "heedful training"


class Damaged(ValueError):
    """A file that is not a whole checkpoint; the message says what is wrong with it."""


class Checkpoint:
    """Where a training keeps its state, and how often.

    Args:
        folder: made if it is not there; one training a folder. The training goes on from what is in it.
        every: optimizer steps from one to the next; or
        seconds: time from one to the next. A training also leaves one when it is done.
        keep: how many files stay.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder)
    ...     _ = checkpoint.save(12, {"weights": {"w": torch.ones(3)}, "epoch": 2})
    ...     checkpoint.load()
    {'weights': {'w': tensor([1., 1., 1.])}, 'epoch': 2}
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        every: int | None = None,
        seconds: float = 30.0,
        keep: int = 2,
    ):
        if every is not None and every < 1:
            raise ValueError(f"Checkpoint: every is {every}; it takes at least 1 step.")
        if keep < 1:
            raise ValueError(f"Checkpoint: keep is {keep}; it takes at least 1.")
        self.folder = Path(folder)
        self.every, self.seconds, self.keep = every, seconds, keep
        self._saved = time.monotonic()

    def due(self, step: int) -> bool:
        """Whether it is time to save."""
        if self.every is not None:
            return step % self.every == 0
        return time.monotonic() - self._saved >= self.seconds

    def files(self) -> list[Path]:
        """The checkpoints in the folder, the newest first."""
        found = [path for path in self.folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(path.stem[5:]), reverse=True)

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a state; the file appears when it is whole."""
        plain, tensors = pack(state)
        header = json.dumps({"format": FORMAT, "step": step, "state": plain})
        path = self.folder / f"step-{step:09d}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(path, tensors, {_HEADER: header, "checksum": _checksum(header, tensors)})
            for old in self.files()[self.keep :]:
                old.unlink(missing_ok=True)
        except OSError as error:
            what = f"the checkpoint of step {step} could not be written; the one before is untouched"
            raise OSError(error.errno, f"{what}: {error.strerror or error}", str(path)) from error
        self._saved = time.monotonic()
        return path

    def load(self) -> Any:
        """The newest state that is whole, or None in an empty folder.

        A damaged file is passed over with a warning; a `Damaged` error says what is wrong where none is
        whole.
        """
        for leftover in self.folder.glob(".step-*.part"):  # of a training that was killed while writing
            leftover.unlink(missing_ok=True)
        wrong = []
        for path in self.files():
            try:
                state = read(path)
            except Damaged as error:
                wrong.append(str(error))
                continue
            if wrong:
                warnings.warn(f"{wrong[0]} Going on from {path.name}, the one before.", stacklevel=2)
            return state
        if wrong:
            raise Damaged(" ".join(wrong) + f" To begin anew, remove {self.folder}.")
        return None

    def __repr__(self) -> str:
        often = f"every={self.every}" if self.every is not None else f"seconds={self.seconds:g}"
        return f"Checkpoint({str(self.folder)!r}, {often})"


_NAME = re.compile(r"step-\d+\.safetensors")


def read(path: str | os.PathLike) -> Any:
    """The state in a checkpoint file; a `Damaged` error says why there is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Cloned, for sums over a tensor depend, in the last bit, on where in a cache line it begins.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{path} is truncated, or not a safetensors file ({error}).") from error
    if _HEADER not in metadata:
        raise Damaged(f"{path} is a safetensors file, but not a checkpoint of a training.")
    if _checksum(metadata[_HEADER], tensors) != metadata.get("checksum"):
        raise Damaged(f"{path} is damaged: its content does not match its checksum.")
    header = json.loads(metadata[_HEADER])
    if header["format"] != FORMAT:
        raise Damaged(
            f"{path} is of format {header['format']}; this heedful reads format {FORMAT}. Update heedful."
        )
    return unpack(header["state"], tensors)


def _checksum(header: str, tensors: Mapping[str, Tensor]) -> str:
    """Against accidents, not against enemies."""
    total = zlib.crc32(header.encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        if tensors[name].numel():
            total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    part = path.with_name(f".{path.stem}.part")
    try:
        try:
            save_file(tensors, part, metadata)
        except SafetensorError as error:  # how it reports a full disk
            raise OSError(errno.EIO, str(error)) from error
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        if os.name == "posix":  # the rename itself must outlive a power cut
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
