"""What models share: they remember how they were built, and keep themselves in one safe file."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ..attention.neighbors import Neighbors
from ..attention.similarity import Similarity
from ..phrases import as_neighbors, as_similarity

FORMAT = 1  # of the file: its metadata's layout; a class counts changes to its own weights in `version`


class _Remembered(type):
    """Keeps the arguments a model was built with in `config`, defaults included."""

    def __call__(cls, *arguments, **options):
        model = super().__call__(*arguments, **options)
        given = inspect.signature(cls.__init__).bind(None, *arguments, **options)
        given.apply_defaults()
        config = {}
        for name, parameter in list(given.signature.parameters.items())[1:]:
            value = given.arguments[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                config |= value
            else:
                config[name] = deepcopy(value) if isinstance(value, (list, dict)) else value
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
        Model.kinds[_title(cls)] = cls

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned; shared ones count once."""
        return _count(self)

    def save(self, path: str | os.PathLike, *, notes: Mapping[str, Any] | None = None) -> Path:
        """Write weights and configuration to `path`, whole or not at all.

        `notes` (JSON) is what else its users must know: the names of the classes, the symbols of the text.
        `models.notes` reads it.
        """
        from safetensors.torch import save as serialised

        path = Path(path)
        header = {
            "format": FORMAT,
            "class": _title(type(self)),
            "version": self.version,
            "config": _readable(self),
            "notes": dict(notes or {}),
        }
        # Cloned, for safetensors takes neither tensors that share memory nor ones in another order.
        weights = {
            name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, value in self.state_dict().items()
        }
        _replace(path, serialised(weights, {"heedful": json.dumps(header)}))
        return path

    @classmethod
    def load(cls, path: str | os.PathLike, *, device: str | torch.device = "cpu") -> Self:
        """The model that `save` wrote; a `ValueError` says why where the file is not one."""
        header, weights = _read(Path(path), device)
        kind = cls._named(path, header["class"])
        if header["version"] != kind.version:
            raise ValueError(
                f"{path} holds version {header['version']} of {kind.__name__}; this heedful reads version "
                f"{kind.version}. Train it again, or use the heedful that wrote it."
            )
        try:
            with torch.random.fork_rng(devices=[]):  # what is drawn here is not used, so nobody should notice
                model = kind(**header["config"]).to(device)
        except Exception as error:
            raise ValueError(
                f"{path}: no {kind.__name__} can be built from its configuration: {error}"
            ) from error
        wanted = model.state_dict(keep_vars=True)
        missing, odd = wanted.keys() - weights, weights.keys() - wanted
        if missing or odd:
            said = f"lacks {_few(missing)}" if missing else f"has {_few(odd)} besides"
            raise ValueError(f"{path} does not fit its configuration: it {said}.")
        for name, value in wanted.items():
            if value.shape != weights[name].shape:
                raise ValueError(
                    f"{path} does not fit its configuration: {name} has shape {tuple(weights[name].shape)}, "
                    f"the {kind.__name__} takes {tuple(value.shape)}."
                )
        dtypes = {value.dtype for value in weights.values() if value.is_floating_point()}
        if len(dtypes) == 1:
            model.to(dtypes.pop())  # what was bfloat16 stays bfloat16, buffers that are not saved too
        for name, value in wanted.items():
            value.data = value.data.to(weights[name].dtype)
        model.load_state_dict(weights)
        return model

    @classmethod
    def _named(cls, path: str | os.PathLike, title: str) -> type[Self]:
        """The class a file names: one that is known, or the one asked for if that is its name."""
        kind = cls if title.rpartition(".")[2] == cls.__name__ else Model.kinds.get(title)
        if kind is None:
            remedy = "Import the module that defines it." if "." in title else "Update heedful."
            raise ValueError(f"{path} holds a {title}, which is not known here. {remedy}")
        if not issubclass(kind, cls):
            raise ValueError(f"{path} holds a {title}, not a {cls.__name__}; use {kind.__name__}.load.")
        return kind

    def __repr__(self) -> str:
        config = vars(self).get("config", {})  # none yet where a constructor prints itself
        given = ", ".join(f"{name}={value!r}" for name, value in config.items() if value is not None)
        parts = [(name, _kind(part), _count(part)) for name, part in self.named_children()]
        held = sum(parameter.numel() for parameter in self.parameters(recurse=False))
        if held:
            parts.append(("own", "Parameter", held))
        wide = max((len(name) for name, _, _ in parts), default=0)
        wider = max((len(kind) for _, kind, _ in parts), default=0)
        lines = [f"  {name:<{wide}}  {kind:<{wider}}  {count:>12,}" for name, kind, count in parts]
        return "\n".join(
            [f"{type(self).__name__}({given})", *lines, f"  {self.parameter_count:,} parameters"]
        )


def _title(kind: type) -> str:
    """What a file calls a class: one of ours by its name, anyone else's with the module it lives in."""
    ours = kind.__module__.startswith("heedful.")
    return kind.__name__ if ours else f"{kind.__module__}.{kind.__name__}"


def _few(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"{first} and {len(rest)} more" if rest else first


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


def notes(path: str | os.PathLike) -> dict[str, Any]:
    """What `save` was told besides the model; nothing is loaded."""
    return _opened(Path(path), lambda header, file: header["notes"])


def class_of(path: str | os.PathLike) -> str:
    """The class of the model in a file, as in "GPT"; nothing is loaded."""
    return _opened(Path(path), lambda header, file: header["class"])


def _readable(model: Model) -> dict[str, Any]:
    """The configuration as JSON; similarities and neighbors as the text they print, if that reads back."""
    found = {}
    for name, value in model.config.items():
        try:
            if isinstance(value, Similarity):
                value = _text(value, as_similarity)
            elif isinstance(value, Neighbors):
                value = _text(value, as_neighbors)
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"{type(model).__name__}.save: {name}={value!r} cannot be written down. "
                f"Build the model from numbers and text, or keep its state_dict yourself."
            ) from None
    return found


def _text(choice: Any, read: Callable[[str], Any]) -> str:
    """What a similarity or neighbors prints, which must read back as the same, to the last digit."""
    text = repr(choice)
    if read(text).signature != choice.signature:
        raise ValueError
    return text


def _replace(path: Path, content: bytes) -> None:
    """Write beside, flush to disk, then rename: a reader sees the old file or the new one."""
    path = path.resolve()  # of a link, the file it points to is replaced
    if path.is_dir() or not path.parent.is_dir():
        wrong = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise FileNotFoundError(f"save(): {wrong}; give the name of a file in one that exists.")
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
    def tensors(header, file):
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    return _opened(path, tensors, device)


def _opened(path: Path, take: Callable, device: str | torch.device = "cpu") -> Any:
    """What `take(header, file)` makes of a file that is ours."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return take(_header(path, file.metadata() or {}), file)
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated, or not a safetensors file ({error}).") from error


def _header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """Class, version, configuration and notes, as `save` wrote them."""
    try:
        header = dict(json.loads(metadata["heedful"]))
        form = int(header["format"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{path} is a safetensors file, but not a model saved by heedful: nothing in its header says so."
        ) from None
    if form != FORMAT:
        raise ValueError(f"{path} is of format {form}; this heedful reads format {FORMAT}. Update heedful.")
    try:
        return {
            "class": str(header["class"]),
            "version": int(header["version"]),
            "config": dict(header["config"]),
            "notes": dict(header.get("notes", {})),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: its header is damaged ({error!r}).") from None
