"""Command-line options shared by several commands."""

from typing import Annotated, cast, get_args

import typer
from pydantic import ValidationError

from shared.config import Config, Method
from shared.errors import ConfigError
from shared.schemas import describe

Embedded = Annotated[
    bool,
    typer.Option("--embedded", help="Start Redis, sandbox, judges and aggregator for this run."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Discard the contents of the output folder and start over.")
]
Output = Annotated[str | None, typer.Option("--output", help="Folder of the run's artifacts.")]
ConfigFile = Annotated[str | None, typer.Option("--config", help="YAML file of the run.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the config to change.")
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="batch (default), submit or compute_score.")
]
UseSubmit = Annotated[
    bool, typer.Option("--use-submit-api", help="Judge by SandboxFusion's /submit.")
]
UseComputeScore = Annotated[
    bool, typer.Option("--use-compute-score", help="Judge by verl's rules: the GRPO reward.")
]
AllowUnlocked = Annotated[
    bool,
    typer.Option("--allow-unlocked", help="Accept data that differs from data.lock and record it."),
]


def with_method(config: Config, name: str | None, submit: bool, compute_score: bool) -> Config:
    """Apply the flags that choose a method.

    Raises:
        ConfigError: Unknown method, or more than one.
    """
    flags = {"submit": submit, "compute_score": compute_score}
    chosen = {*([name] if name else []), *(method for method, given in flags.items() if given)}
    if len(chosen) > 1:
        raise ConfigError(f"give one method, not {' and '.join(sorted(chosen))}")
    if not chosen:
        return config
    return judged_by(config, method_named(chosen.pop()))


def judged_by(config: Config, method: Method) -> Config:
    """The config with another judging method.

    Raises:
        ConfigError: The method does not go with the other judge settings.
    """
    try:
        judge = config.judge.with_method(method)
    except ValidationError as error:
        raise ConfigError(f"method {method}: judge.{describe(error)}") from None
    return config.model_copy(update={"judge": judge})


def method_named(name: str) -> Method:
    """Check the name of a method.

    Raises:
        ConfigError: Unknown method.
    """
    methods = get_args(Method)
    if name not in methods:
        raise ConfigError(f"unknown method {name!r}; choose one of {', '.join(methods)}")
    return cast(Method, name)


def yaml_string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
