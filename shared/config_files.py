"""YAML config files with ``key=value`` overrides, validated; unknown keys get a suggestion.

A file that cannot be read or parsed, an ill-formed override, and an invalid key or value are a
:class:`ConfigError`, whose message names the key and the nearest valid one.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from shared.errors import ConfigError
from shared.redaction import redact, remember_address
from shared.text import one_line, plain_message, shorten_end

ModelT = TypeVar("ModelT", bound=BaseModel)
# Hydra's list of files to compose, for a file that is composed of nothing else.
_ALONE = ["_self_"]


def load_document(
    source: str | Path | Mapping[str, object] | None,
    overrides: Sequence[str] = (),
    *,
    missing: bool = False,
) -> object:
    """Read a YAML file (or none), or take a mapping, and apply overrides.

    Overrides are ``key=value`` or ``+key=value``. With ``missing``, mandatory values that have no
    value stay ``???``.
    """
    # Imported here because the services validate configurations and read no YAML.
    from omegaconf import DictConfig, OmegaConf

    path = source if isinstance(source, str | Path) and source else None
    fields = source if isinstance(source, Mapping) else {}
    place = str(path or "overrides")
    with _parsing(place):
        base = OmegaConf.load(path) if path else OmegaConf.create(dict(fields))
    if path and isinstance(base, DictConfig) and base.pop("defaults", _ALONE) != _ALONE:
        raise ConfigError(
            f"{path}: its `defaults` name further files, which only Hydra composes; give the "
            "composed file, which `--cfg job --resolve` prints"
        )
    for override in overrides:
        # A parser's message may quote half of an address, also of one in a list.
        remember_address(override.partition("=")[2].strip("[]\"' "))
        if "=" not in override:
            raise ConfigError(f"override {override!r} is not key=value (e.g. judge.workers=4)")
    if not isinstance(base, DictConfig):
        raise ConfigError(f"{place}: the top level must be a mapping of sections")
    with _parsing(place):
        dotlist = [override.lstrip("+") for override in overrides]
        merged = OmegaConf.merge(base, OmegaConf.from_dotlist(dotlist))
        return OmegaConf.to_container(merged, resolve=True, throw_on_missing=not missing)


def overridden_keys(overrides: Sequence[str]) -> list[str]:
    """The dotted keys that overrides set or remove."""
    return [override.lstrip("+~").partition("=")[0] for override in overrides]


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
    """Validate a plain mapping."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(model, error)) from None


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        # pydantic adds a part for the key of a mapping that is invalid itself.
        key = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        if problem["type"] == "extra_forbidden":
            near = _nearest(model, key)
            hint = f"; did you mean {near!r}?" if near else ""
            lines.append(f"unknown config key {key!r}{hint}")
        else:
            value = problem["input"]
            whole = problem["type"] == "value_error" and isinstance(value, Mapping)
            observed = "" if whole else f" (got {_shown(value)})"
            lines.append(f"config key {key!r}: {plain_message(problem['msg'])}{observed}")
    return "; ".join(lines)


def _nearest(model: type[BaseModel], key: str) -> str | None:
    keys = list(_keys(model))
    leaf = key.rsplit(".", 1)[-1]
    exact = [name for name in keys if name.rsplit(".", 1)[-1] == leaf]
    matches = difflib.get_close_matches(key, exact or keys, n=1, cutoff=0.0 if exact else 0.5)
    return matches[0] if matches else None


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")


def _shown(value: object) -> str:
    return "a mapping" if isinstance(value, Mapping) else shorten_end(redact(repr(value)), 80)
