"""What models share: they remember how they were built, and keep themselves in one safe file."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ..attention.neighbors import Neighbors
from ..attention.similarity import Similarity
from ..phrases import as_neighbors, as_similarity, suggestion

FORMAT = 1  # of the file: its metadata's layout; a class counts changes to its own weights in `version`


class _Remembered(type):
    """Keeps the arguments a model was built with in `config`, defaults included."""

    def __call__(cls, *arguments, **options):
        given = inspect.signature(cls.__init__).bind(None, *arguments, **options)
        given.apply_defaults()
        config = {name: given.arguments[name] for name in list(given.arguments)[1:]}
        model = super().__call__(*arguments, **options)
        model.config = config
        return model


class Model(nn.Module, metaclass=_Remembered):
    """An `nn.Module` with `config` (what it was built with), `save` and `load`.

    The file is safetensors, with the class and its configuration as JSON in the header. Nothing in it is ever
    executed. Arguments must be JSON, or a similarity or neighbors whose text reads back.
    """

    version: ClassVar[int] = 1
    kinds: ClassVar[dict[str, type[Model]]] = {}
    config: dict[str, Any]

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        Model.kinds[cls.__name__] = cls

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned; shared ones count once."""
        return _count(self)

    def save(self, path: str | os.PathLike) -> Path:
        """Write weights and configuration to `path`, whole or not at all."""
        from safetensors.torch import save as serialised

        path = Path(path)
        header = {
            "format": FORMAT,
            "class": type(self).__name__,
            "version": self.version,
            "config": _readable(self),
        }
        weights = {name: value.detach().cpu().clone() for name, value in self.state_dict().items()}
        content = serialised(weights, {"heedful": json.dumps(header)})
        _replace(path, content)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike, *, device: str | torch.device = "cpu") -> Self:
        """The model that `save` wrote; a `ValueError` says why where the file is not one."""
        header, weights = _read(Path(path), device)
        kind = Model.kinds.get(header["class"])
        if kind is None:
            near = suggestion(header["class"], Model.kinds)
            raise ValueError(f"{path} holds a {header['class']}, which heedful does not know{near}.")
        if not issubclass(kind, cls):
            raise ValueError(
                f"{path} holds a {kind.__name__}, not a {cls.__name__}; use {kind.__name__}.load."
            )
        if header["version"] != kind.version:
            raise ValueError(
                f"{path} holds version {header['version']} of {kind.__name__}; this heedful reads version "
                f"{kind.version}. Train it again, or use the heedful that wrote it."
            )
        try:
            model = kind(**header["config"]).to(device)
            for name, value in model.state_dict(keep_vars=True).items():
                value.data = value.data.to(weights[name].dtype)  # what was bfloat16 stays bfloat16
            model.load_state_dict(weights)
        except KeyError as error:
            raise ValueError(f"{path} is incomplete: it has no weights called {error}.") from error
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path}: its weights do not fit its configuration: {error}") from error
        return model  # type: ignore[return-value]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.config.items() if value is not None)
        parts = [(name, _kind(part), _count(part)) for name, part in self.named_children()]
        held = sum(parameter.numel() for parameter in self.parameters(recurse=False))
        if held:
            parts.append(("own", "Parameter", held))
        wide = [max((len(part[i]) for part in parts), default=0) for i in (0, 1)]
        lines = [f"  {name:<{wide[0]}}  {kind:<{wide[1]}}  {count:>12,}" for name, kind, count in parts]
        return "\n".join(
            [f"{type(self).__name__}({given})", *lines, f"  {self.parameter_count:,} parameters"]
        )


def _kind(part: nn.Module) -> str:
    """What a part is, in a few words: six blocks of one kind are "6 × TransformerBlock"."""
    kinds = {type(child).__name__ for child in part.children()}
    count = len(list(part.children()))
    if isinstance(part, (nn.ModuleList, nn.Sequential)) and len(kinds) == 1 and count > 1:
        return f"{count} × {kinds.pop()}"
    text = repr(part) if not kinds else ""
    return text if text and "\n" not in text and len(text) <= 48 else type(part).__name__


def _count(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def load(path: str | os.PathLike, *, device: str | torch.device = "cpu") -> Model:
    """The model in a file, whatever its class."""
    return Model.load(path, device=device)


def _readable(model: Model) -> dict[str, Any]:
    """The configuration as JSON; similarities and neighbors as the text they print, if that reads back."""
    found = {}
    for name, value in model.config.items():
        try:
            if isinstance(value, Similarity):
                value = repr(as_similarity(repr(value)))
            elif isinstance(value, Neighbors):
                value = repr(as_neighbors(repr(value)))
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            raise TypeError(
                f"{type(model).__name__}.save: {name}={value!r} cannot be written down. "
                f"Build the model from numbers and text, or keep its state_dict yourself."
            ) from None
    return found


def _replace(path: Path, content: bytes) -> None:
    """Write beside, flush to disk, then rename: a reader sees the old file or the new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path, device) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated, or not a safetensors file ({error}).") from error
    try:
        header = json.loads(metadata["heedful"])
        header["class"], header["version"], header["config"] = (
            str(header["class"]),
            int(header["version"]),
            dict(header["config"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{path} is a safetensors file, but not a model saved by heedful: no configuration in its header."
        ) from None
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{path} is of format {header.get('format')}; this heedful reads format {FORMAT}. Update heedful."
        )
    return header, weights
