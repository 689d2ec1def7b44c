"""Generator of the reference tables in the documents, from the code.

``python -m tools.reference`` rewrites the generated blocks in place. A block is delimited by
``<!-- generated: NAME -->`` and ``<!-- /generated -->``. The descriptions of settings and config
keys are the docstrings below the fields.
"""

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from services.aggregator.settings import AggregatorSettings
from services.generator.settings import GeneratorSettings
from services.judge.jobs import JudgeSettings
from services.reward.settings import RewardSettings
from services.sandbox.settings import SandboxSettings
from shared.analysis.catalogue import METRICS, Group, MetricInfo
from shared.config import Config
from shared.protocol import Section, leaves
from shared.service.settings import RedisSettings
from shared.verl_keys import MAPPED, RECORDED, REFUSED, SECTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("docs/reference.md", "docs/metrics.md")
SETTINGS: Mapping[str, type[BaseSettings]] = {
    "sandbox": SandboxSettings,
    "generator": GeneratorSettings,
    "judge": JudgeSettings,
    "aggregator": AggregatorSettings,
    "reward": RewardSettings,
    "`plumb`": RedisSettings,
}


def _with_subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for child in model.__subclasses__():
        yield from _with_subclasses(child)


def _describe_fields(models: Iterable[type[BaseModel]]) -> None:
    """Set ``description`` of each model's fields to the docstring below them.

    Pydantic would do so whenever a class is defined (``use_attribute_docstrings``): a tenth of the
    time that `plumb` needs to start, for texts that only documents show.
    """
    for model in models:
        bases = [
            base
            for base in model.__mro__
            if base.__module__.split(".")[0] in ("services", "shared")
        ]
        texts = {name: text for base in reversed(bases) for name, text in _docstrings(base)}
        for name, field in model.model_fields.items():
            field.description = field.description or texts.get(name)


def _docstrings(model: type) -> Iterator[tuple[str, str]]:
    """Yield the name of each annotated field and the docstring below it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    for field, text in itertools.pairwise(tree.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                yield name, inspect.cleandoc(docstring)


_describe_fields([*SETTINGS.values(), *_with_subclasses(Section)])
_BLOCK = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL
)
_MAX_DEFAULT_LENGTH = 50


def environment() -> str:
    """Environment variables that the services' settings read."""
    services: dict[tuple[str, str, str], list[str]] = {}
    for service, settings in SETTINGS.items():
        for name, field in settings.model_fields.items():
            row = (_variable(settings, name, field), _default(field), _described(field))
            services.setdefault(row, []).append(service)
    rows = sorted(
        (variable, ", ".join(readers), default, text)
        for (variable, default, text), readers in services.items()
    )
    quoted = [(f"`{variable}`", *facts) for variable, *facts in rows]
    return _table(("variable", "read by", "default", "description"), quoted)


def config_keys() -> str:
    """All keys of a run's configuration by their full names."""
    rows = [
        (f"`{leaf.path}`", _kind(leaf.info), _default(leaf.info), leaf.role, _described(leaf.info))
        for leaf in leaves(Config)
    ]
    return _table(("key", "type", "default", "role", "description"), rows)


def verl_keys() -> str:
    """verl's keys that are not ours under the same name."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for key, name in (SECTIONS | MAPPED).items():
        grouped.setdefault((f"`{name}`", ""), []).append(key)
    for here, table in (("refused", REFUSED), ("recorded", RECORDED)):
        for key, text in table.items():
            grouped.setdefault((here, text), []).append(key)
    rows = [
        (", ".join(f"`{key}`" for key in keys), here, text)
        for (here, text), keys in grouped.items()
    ]
    return _table(("verl's key", "here", "what happens"), rows)


def metrics() -> str:
    """The metrics of a data set, sorted by group."""
    header = ("metric", "group", "unit", "formula", "samples", "interval", "plan", "live")
    ordered = (metric for group in Group for metric in METRICS if metric.group is group)
    return _table(header, [_metric_row(metric) for metric in ordered])


def _metric_row(metric: MetricInfo) -> tuple[str, ...]:
    name = f"`{metric.key}`: {metric.label}"
    live = f"`{metric.prometheus}`" if metric.prometheus else ""
    planned = "yes" if metric.planned else ""
    figures = (metric.unit, metric.formula, metric.samples, metric.interval)
    return name, metric.group, *figures, planned, live


BLOCKS: Mapping[str, Callable[[], str]] = {
    "environment": environment,
    "config-keys": config_keys,
    "verl-keys": verl_keys,
    "metrics": metrics,
}


def render(document: str) -> str:
    """Replace the content of each generated block.

    Raises:
        KeyError: A block has a name that is not in ``BLOCKS``.
    """
    return _BLOCK.sub(lambda m: f"{m['start']}{BLOCKS[m['name']]()}\n{m['end']}", document)


def stale(root: Path = ROOT) -> list[str]:
    """Documents whose generated blocks differ from the code."""
    return [name for name in DOCUMENTS if render(text := (root / name).read_text("utf-8")) != text]


def _variable(settings: type[BaseSettings], name: str, field: FieldInfo) -> str:
    if isinstance(field.validation_alias, str):
        return field.validation_alias
    return f"{settings.model_config.get('env_prefix', '')}{name}".upper()


def _default(field: FieldInfo) -> str:
    if field.default_factory in (list, dict):
        return f"`{field.default_factory()}`"
    if field.default_factory is not None:
        return ""  # depends on the machine; see the description
    value = field.default.value if isinstance(field.default, Enum) else field.default
    if value is None or value in ("", ()):
        return ""
    text = json.dumps(value, default=str) if not isinstance(value, str) else value
    return f"`{text}`" if len(text) <= _MAX_DEFAULT_LENGTH else "see the description"


def _kind(field: FieldInfo) -> str:
    return ", ".join([_type_name(field.annotation), *_limits(field.metadata)])


def _type_name(kind: Any) -> str:  # noqa: ANN401 - a type expression is of any class
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return _choices(arguments)
    if origin in (Union, UnionType):
        names = [_type_name(argument) for argument in arguments if argument is not NoneType]
        return " or ".join([*names, *(["null"] if NoneType in arguments else [])])
    if origin is list:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choices([member.value for member in kind])
    return str(getattr(kind, "__name__", kind))


def _choices(values: Sequence[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _limits(metadata: Sequence[object]) -> list[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return [
        *(f"{sign} {getattr(limit, name)}" for limit in metadata for name, sign in signs.items()
          if hasattr(limit, name)),
        *("not empty" for limit in metadata if limit == MinLen(1)),
    ]  # fmt: skip


def _described(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_row(header), "|---" * len(header) + "|", *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")


def main() -> None:
    for name in stale():
        path = ROOT / name
        path.write_text(render(path.read_text("utf-8")), encoding="utf-8")
        print(f"updated {name}")


if __name__ == "__main__":
    main()
