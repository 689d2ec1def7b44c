"""YAML config files with ``key=value`` overrides, validated; unknown keys get a suggestion.

A file with a ``defaults`` list is composed by Hydra, from its own folder and from ``configs`` in
the working directory. Overrides that choose an option of a group are Hydra's then. All others mean
the same for every file: ``key=value`` or ``+key=value`` sets a key, ``~key`` removes what the file
says.
"""

import difflib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from shared.errors import ConfigError
from shared.redaction import redact, remember_address
from shared.text import one_line, shorten_end

if TYPE_CHECKING:
    from omegaconf import DictConfig

ModelT = TypeVar("ModelT", bound=BaseModel)


def load_document(
    path: str | Path | None, overrides: Sequence[str] = (), *, missing: bool = False
) -> object:
    """Read a YAML file (or none) and apply overrides.

    Overrides are ``key=value``, ``+key=value`` or ``~key``, and ``group=option`` for a file with a
    ``defaults`` list. With ``missing``, mandatory values that have no value stay ``???``.

    Raises:
        ConfigError: The file cannot be read, parsed or composed, or an override is ill-formed.
    """
    # Imported here because the services validate configurations and read no YAML.
    from omegaconf import DictConfig, OmegaConf

    place = str(path or "overrides")
    with _parsing(place):
        base = OmegaConf.load(path) if path else OmegaConf.create({})
    if path and isinstance(base, DictConfig) and "defaults" in base:
        base, overrides = _compose(Path(path), base, overrides)
    return _apply(place, base, overrides, missing=missing)


def override_document(document: Mapping[str, object], overrides: Sequence[str]) -> object:
    """Apply ``key=value`` overrides to a mapping.

    Raises:
        ConfigError: An override is not ``key=value``.
    """
    from omegaconf import OmegaConf

    return _apply("overrides", OmegaConf.create(dict(document)), overrides)


def _apply(place: str, base: object, overrides: Sequence[str], *, missing: bool = False) -> object:
    from omegaconf import DictConfig, OmegaConf

    removed = [override for override in overrides if override.startswith("~")]
    given = [override.lstrip("+") for override in overrides if override not in removed]
    for override in given:
        # A parser's message may quote half of an address, also of one in a list.
        remember_address(override.partition("=")[2].strip("[]\"' "))
        if "=" not in override:
            raise ConfigError(f"override {override!r} is not key=value (e.g. judge.workers=4)")
    if not isinstance(base, DictConfig):
        raise ConfigError(f"{place}: the top level must be a mapping of sections")
    for override in removed:
        _remove(place, base, override)
    with _parsing(place):
        merged = OmegaConf.merge(base, OmegaConf.from_dotlist(given))
        return OmegaConf.to_container(merged, resolve=True, throw_on_missing=not missing)


def _remove(place: str, base: "DictConfig", override: str) -> None:
    """Apply ``~key``."""
    from omegaconf import DictConfig, OmegaConf

    key = override.removeprefix("~")
    parent, _, name = key.rpartition(".")
    with _parsing(place):
        section = OmegaConf.select(base, parent) if parent else base
        if not isinstance(section, DictConfig) or name not in section:
            raise ConfigError(f"override {override!r}: {place} has no {key}; leave it out")
        del section[name]


def overridden_keys(overrides: Sequence[str]) -> list[str]:
    """The dotted keys that overrides set or remove."""
    return [override.lstrip("+~").partition("=")[0] for override in overrides]


# Composition by Hydra


def _compose(
    path: Path, base: "DictConfig", overrides: Sequence[str]
) -> tuple["DictConfig", list[str]]:
    """Compose a file with its defaults; also returns the overrides that are not Hydra's."""
    # Imported here because few files have defaults, and a command starts faster without.
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    file = path.absolute()
    if file.suffix != ".yaml":
        raise ConfigError(f"{path}: a file with defaults is composed by Hydra; name it *.yaml")
    search = _search_path(file, base)
    with _composing(str(path)), initialize_config_dir(str(file.parent), version_base=None):
        loader = GlobalHydra.instance().config_loader()

        def is_for_hydra(override: str) -> bool:
            key = override.lstrip("+~").partition("=")[0]
            if "@" in key or key == "hydra.searchpath":
                return True
            return bool(loader.get_group_options(key, config_name=file.stem, overrides=search))

        ours = [override for override in overrides if not is_for_hydra(override)]
        theirs = [override for override in overrides if override not in ours]
        composed = compose(file.stem, overrides=[*search, *theirs])
    OmegaConf.set_struct(composed, False)
    return composed, ours


def _search_path(file: Path, base: "DictConfig") -> list[str]:
    """An override that adds ``configs`` in the working directory to the file's own search path."""
    from omegaconf import OmegaConf

    folder = Path("configs").absolute()
    if not folder.is_dir() or folder == file.parent:
        return []
    own = OmegaConf.select(base, "hydra.searchpath", default=[])
    places = [*own, f"file://{folder}"]  # Hydra decodes no %-sequences
    quoted = (json.dumps(str(one), ensure_ascii=False) for one in places)
    return [f"hydra.searchpath=[{','.join(quoted)}]"]


@contextmanager
def _composing(place: str) -> Iterator[None]:
    from hydra.errors import HydraException

    with _parsing(place), warnings.catch_warnings(record=True) as warned:
        try:
            yield
        except HydraException as error:
            text = str(error).partition("Config search path:")[0]
            hints = "".join(f" ({one.message})" for one in warned)
            if "is not available" in hints:
                hints += "; its defaults are in a package that this environment lacks"
            raise ConfigError(f"{place}: {' '.join(text.split())}{hints}") from None
        except RecursionError:
            raise ConfigError(f"{place}: its defaults include each other without end") from None


# Reading and validation


@contextmanager
def _parsing(place: str) -> Iterator[None]:
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read the config {place}: {error.strerror or error}") from None
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"{place}: {one_line(error)}") from None


def validate_document(model: type[ModelT], document: object) -> ModelT:
    """Validate a plain mapping.

    Raises:
        ConfigError: A key or value is invalid; the message names the key and the nearest valid one.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(model, error)) from None


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = _nearest(model, key)
            hint = f"; did you mean {near!r}?" if near else ""
            lines.append(f"unknown config key {key!r}{hint}")
        else:
            lines.append(f"config key {key!r}: {problem['msg']} (got {_shown(problem['input'])})")
    return "; ".join(lines)


def _nearest(model: type[BaseModel], key: str) -> str | None:
    known = list(_keys(model))
    leaf = key.rsplit(".", 1)[-1]
    exact = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    found = difflib.get_close_matches(key, exact or known, n=1, cutoff=0.0 if exact else 0.5)
    return found[0] if found else None


def _keys(model: type[BaseModel], prefix: str = "") -> Sequence[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names.extend(_keys(field.annotation, f"{prefix}{name}."))
    return names


def _shown(value: object) -> str:
    return "a mapping" if isinstance(value, Mapping) else shorten_end(redact(repr(value)), 80)
