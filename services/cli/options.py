"""Command-line options shared by several commands."""

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from typer import Argument, Option

from shared.artifacts import RUN
from shared.config import Config, Method
from shared.config_files import overridden_keys
from shared.errors import ConfigError
from shared.protocol import leaves
from shared.redaction import remember_address
from shared.schemas import describe
from shared.text import split_urls
from shared.verl_keys import canonical

if TYPE_CHECKING:
    from shared.finished_run import FinishedRun

SectionT = TypeVar("SectionT", bound=BaseModel)
# Folder in which runs are looked for by name.
_OUTPUTS = "outputs"

Embedded = Annotated[
    bool, Option("--embedded", help="Start Redis, sandbox, judges and aggregator for this run.")
]
Force = Annotated[
    bool, Option("--force", help="Discard the contents of the output folder and start over.")
]


def run_folder(named: str) -> str:
    """The folder of a run that is named by its folder, also one in ``outputs``, its name or its id.

    Raises:
        ConfigError: Several runs have the name.
    """
    # A folder without a run, such as demo/ in a checkout, does not hide a run of its name.
    if "://" in named or os.path.lexists(f"{named}/{RUN}"):
        return named
    # One that was interrupted is found, too, so that a command says of it what is missing.
    runs = _named_runs(named) or _named_runs(named, unpublished=True)
    if len(runs) > 1:
        folders = ", ".join(run.folder.shown for run in runs)
        raise ConfigError(f"{len(runs)} runs are named {named}: {folders}; give the folder")
    return runs[0].folder.url if runs else named


def _named_runs(named: str, *, unpublished: bool = False) -> "list[FinishedRun]":
    # Imported here because most commands need no finished run.
    from shared.finished_run import open_runs

    runs = open_runs(_OUTPUTS, unpublished=unpublished)[0]
    by_name = [run for run in runs if named in (run.name, run.record.run)]
    by_folder = [run for run in runs if run.folder.shown == f"{_OUTPUTS}/{named}"]
    # Many runs have the name of their config, so one that has it twice is the one that is meant.
    both = [run for run in by_folder if run in by_name]
    return both or [*by_name, *by_folder]


RunFolder = Annotated[
    str, Argument(help="Folder of a run, also in outputs/, or its name.", callback=run_folder)
]
RunFolders = Annotated[
    list[str],
    Argument(
        help="Folders or names of two or more finished runs.",
        callback=lambda named: [*map(run_folder, named)],
    ),
]
BaseUrl = Annotated[
    list[str] | None, Option(help="OpenAI-compatible server; may be given several times.")
]
Model = Annotated[str | None, Option(help="Model to ask for, or for verl to load.")]
DataPaths = Annotated[list[str] | None, Option(help="Parquet file or folder of them.")]
ConfigFile = Annotated[str | None, Option(help="YAML file of the run.")]


def _complete_keys(incomplete: str) -> list[str]:
    """Config keys for the shell's completion."""
    keys = (f"{leaf.path}=" for leaf in leaves(Config) if "*" not in leaf.path)
    return [key for key in keys if key.startswith(incomplete)]


Overrides = Annotated[
    list[str] | None,
    Argument(
        metavar="[KEY=VALUE]...",
        help="Keys of the config to change.",
        autocompletion=_complete_keys,
    ),
]
_SCRIPTS = "Flags as in verl's scripts (with - or _)"
_SHORT = "Short for keys of the config"
_ROLLOUT = "actor_rollout_ref.rollout"


class KeyOption(NamedTuple):
    """An option that is short for a key of the config."""

    key: str
    kind: type[str | int | float]
    help: str
    panel: str | None = None


_KEY_OPTIONS = {
    "name": KeyOption("run.name", str, "Name of the run, and of its folder in outputs/."),
    "output": KeyOption("output.dir", str, "Folder of the run's artifacts."),
    "limit": KeyOption("data.limit", int, "Only the first N problems of each data set.", _SHORT),
    "n": KeyOption(f"{_ROLLOUT}.n", int, "Answers per problem, for pass@k.", _SHORT),
    "temperature": KeyOption(
        f"{_ROLLOUT}.temperature", float, "Of sampling; 0 (default) is greedy.", _SHORT
    ),
    "top_p": KeyOption(f"{_ROLLOUT}.top_p", float, "Nucleus sampling.", _SHORT),
    "max_tokens": KeyOption(f"{_ROLLOUT}.response_length", int, "Tokens of an answer.", _SHORT),
    "rollout": KeyOption(f"{_ROLLOUT}.name", str, "Engine: vllm or sglang.", _SCRIPTS),
    "tensor_parallel_size": KeyOption(
        f"{_ROLLOUT}.tensor_model_parallel_size", int, "GPUs per replica.", _SCRIPTS
    ),
    "n_gpus": KeyOption("trainer.n_gpus_per_node", int, "GPUs per node.", _SCRIPTS),
    "sandbox_url": KeyOption("sandbox.url", str, "The sandbox.", _SCRIPTS),
    "output_dir": KeyOption("output.dir", str, "As --output.", _SCRIPTS),
    "max_concurrent_requests": KeyOption(
        "generation.concurrency", int, "Requests to the generator in flight.", _SCRIPTS
    ),
}
_METHOD_OPTIONS = {
    "method": Annotated[Method | None, Option(help="How to judge; batch by default.")],
    "use_submit_api": Annotated[
        bool, Option("--use-submit-api", help="Judge by SandboxFusion's /submit.")
    ],
    "use_compute_score": Annotated[
        bool, Option("--use-compute-score", help="Judge by verl's rules.")
    ],
}
_METHOD_FLAGS: Mapping[str, Method] = {
    "use_submit_api": "submit",
    "use_compute_score": "compute_score",
}
Command = Callable[..., None]


def key_options(*names: str) -> Callable[[Command], Command]:
    """Add options that are short for config keys to a command, by default all, and for its method.

    The command gets them as overrides, in the parameter ``flags``, and the name of the method.
    """

    names = names or tuple(_KEY_OPTIONS)

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.name not in ("flags", "method")]
        annotations = {name: _annotation(name) for name in names} | _METHOD_OPTIONS
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if name in _METHOD_FLAGS else None,
                annotation=annotation,
            )
            for name, annotation in annotations.items()
        ]

        @wraps(command)
        def wrapped(*arguments: object, **values: Any) -> None:  # noqa: ANN401 - any option's value
            flags = {_flag(name): (_KEY_OPTIONS[name].key, values.pop(name, None))
                     for name in names}  # fmt: skip
            overrides = flags_as_overrides(flags, values.get("overrides") or [])
            method = values.pop("method", None)
            methods = {method} if method else set()
            methods |= {name for flag, name in _METHOD_FLAGS.items() if values.pop(flag, False)}
            if len(methods) > 1:
                raise ConfigError(f"give one method, not {' and '.join(sorted(methods))}")
            command(*arguments, flags=overrides, method=next(iter(methods), None), **values)

        parameters = [*own, *added]
        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _annotation(name: str) -> object:
    option = _KEY_OPTIONS[name]
    declared = Option(_flag(name), help=option.help, rich_help_panel=option.panel)
    return Annotated[option.kind | None, declared]


AllowUnlocked = Annotated[
    bool, Option("--allow-unlocked", help="Accept data that differs from data.lock and record it.")
]


_DATA = "data/eval"


def default_data() -> list[str]:
    """The data sets in ``data/eval`` that are for evaluation, where ``plumb data prepare`` wrote.

    Raises:
        ConfigError: There are none.
    """
    if Path(_DATA).is_dir():
        # Imported here because the commands that are given data need no roles.
        from shared.datasets import parquet_files
        from shared.manifests import DataRole, dataset_roles

        files = parquet_files(_DATA)
        chosen = [file for file in files if DataRole.TRAIN not in dataset_roles(file).values()]
        if chosen:
            return chosen
    raise ConfigError(
        f"no data sets: `plumb data prepare --config configs/data.yaml` writes some to {_DATA}, "
        "where they are found; or give --data PATH, plumb run also --dataset NAME"
    )


def named_servers(base_url: list[str] | None, embedded: bool) -> list[str] | None:
    """The servers of ``--base-url``, or of GENERATOR_URLS unless the run starts its own."""
    if base_url is None and not embedded:
        return split_urls(os.environ.get("GENERATOR_URLS", "")) or None
    return base_url


def server_and_data(base_url: list[str] | None, data: list[str] | None) -> list[str]:
    """Convert ``--base-url`` and ``--data`` to ``key=value`` overrides."""
    values = {
        "generation.base_urls": base_url and _yaml_list(base_url),
        "generation.backend": base_url and "openai",
        "data.eval_files": data and _yaml_list(data),
    }
    return [f"{key}={value}" for key, value in values.items() if value]


def with_value(model: SectionT, key: str, value: object) -> SectionT:
    """A copy of a config, or a section of it, with another value of a key; it is not validated."""
    name, _, rest = key.partition(".")
    changed = with_value(getattr(model, name), rest, value) if rest else value
    return model.model_copy(update={name: changed})


def with_name(config: Config, overridden: Collection[str]) -> Config:
    """A name or folder of the command line replaces both of the file."""
    named = {"run.name", "output.dir"} & {*overridden}
    if len(named) == 1:
        return with_value(config, "run.name" if "output.dir" in named else "output.dir", "")
    return config


def with_method(config: Config, method: Method | None, overrides: Sequence[str] = ()) -> Config:
    """Apply the options that choose a method.

    Raises:
        ConfigError: The method contradicts other judge settings.
    """
    if method is None:
        return config
    flags_as_overrides({"method": ("judge.method", method)}, overrides)
    try:
        return with_value(config, "judge", config.judge.with_method(method))
    except ValidationError as error:
        raise ConfigError(f"method {method}: judge.{describe(error)}") from None


def own_sandboxes(config: Config, overrides: Sequence[str]) -> list[str]:
    """The sandboxes that the command line names, which then take the place of an embedded one."""
    keys = map(canonical, overridden_keys(overrides))
    return config.sandbox_urls if "sandbox.url" in keys else []


def flags_as_overrides(
    flags: Mapping[str, tuple[str, str | float | None]], overrides: Sequence[str]
) -> list[str]:
    """Convert flags to ``key=value`` overrides.

    Args:
        flags: Key and value by flag; None for a flag that was not given.
        overrides: Those of the command line.

    Raises:
        ConfigError: A flag and an override, or two flags, say different things about a key.
    """
    said: dict[str, tuple[str, str]] = {}
    for override in overrides:
        key, _, text = override.lstrip("+").partition("=")
        said[canonical(key)] = (override, text.strip("\"'"))
    added = []
    for flag, (key, value) in flags.items():
        if value is None:
            continue
        other, already = said.setdefault(key, (f"{flag} {value}", str(value)))
        if already != str(value):
            raise ConfigError(f"{flag} {value} and {other} contradict each other; keep one of them")
        added.append(f"{key}={yaml_string(value) if isinstance(value, str) else value}")
    return added


def with_model(config: Config, name: str | None, overrides: Sequence[str]) -> Config:
    """Apply ``--model``: what verl's replicas load, or what another generator is asked for.

    Raises:
        ConfigError: An override names another model.
    """
    if name is None:
        return config
    remember_address(name)
    loaded = config.generation.backend == "verl"
    key = "actor_rollout_ref.model.path" if loaded else "generation.model"
    flags_as_overrides({"--model": (key, name)}, overrides)
    if loaded and "generation.model" not in overridden_keys(overrides):
        # The name of the config's own model would be wrong.
        config = with_value(config, "generation.model", "")
    return with_value(config, key, name)


def yaml_string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _yaml_list(values: list[str]) -> str:
    return f"[{','.join(yaml_string(value) for value in values)}]"
