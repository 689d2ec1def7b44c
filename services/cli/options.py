"""Command-line options shared by several commands."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from pydantic import ValidationError

from shared.artifacts import RUN
from shared.config import Config, Method
from shared.config_files import overridden_keys
from shared.errors import ConfigError
from shared.protocol import leaves
from shared.redaction import remember_address
from shared.schemas import describe
from shared.verl_translation import canonical

if TYPE_CHECKING:
    from shared.finished_run import FinishedRun

# Folder in which runs are looked for by name.
_OUTPUTS = "outputs"

Embedded = Annotated[
    bool,
    typer.Option("--embedded", help="Start Redis, sandbox, judges and aggregator for this run."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Discard the contents of the output folder and start over.")
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
    known = _named_runs(named) or _named_runs(named, unpublished=True)
    if len(known) > 1:
        folders = ", ".join(run.folder.shown for run in known)
        raise ConfigError(f"{len(known)} runs are named {named}: {folders}; give the folder")
    return known[0].folder.url if known else named


def _named_runs(named: str, *, unpublished: bool = False) -> "list[FinishedRun]":
    # Imported here because most commands need no finished run.
    from shared.finished_run import open_runs

    runs = open_runs(_OUTPUTS, unpublished=unpublished)[0]
    by_name = [run for run in runs if named in (run.name, run.record.run)]
    by_folder = [run for run in runs if run.folder.shown == f"{_OUTPUTS}/{named}"]
    # Many runs have the name of their config, so one that has it twice is the one that is meant.
    both = [run for run in by_folder if run in by_name]
    return both or [*by_name, *by_folder]


def _run_folders(named: list[str]) -> list[str]:
    return [run_folder(one) for one in named]


RunFolder = Annotated[
    str, typer.Argument(help="Folder of a run, also in outputs/, or its name.", callback=run_folder)
]
RunFolders = Annotated[
    list[str],
    typer.Argument(help="Folders or names of two or more finished runs.", callback=_run_folders),
]
BaseUrl = Annotated[
    list[str] | None,
    typer.Option("--base-url", help="OpenAI-compatible server; may be given several times."),
]
Model = Annotated[
    str | None, typer.Option("--model", help="Model to ask for, or for verl to load.")
]
DataPaths = Annotated[
    list[str] | None, typer.Option("--data", help="Parquet file or folder of them.")
]
RunName = Annotated[
    str | None, typer.Option("--name", help="Name of the run, and of its folder in outputs/.")
]
Output = Annotated[str | None, typer.Option("--output", help="Folder of the run's artifacts.")]
ConfigFile = Annotated[str | None, typer.Option("--config", help="YAML file of the run.")]


def _complete_keys(incomplete: str) -> list[str]:
    """Config keys for the shell's completion."""
    keys = (f"{leaf.path}=" for leaf in leaves(Config) if "*" not in leaf.path)
    return [key for key in keys if key.startswith(incomplete)]


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Keys of the config to change.",
        autocompletion=_complete_keys,
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="batch (default), submit or compute_score.",
        autocompletion=lambda: list(get_args(Method)),
    ),
]
UseSubmit = Annotated[
    bool, typer.Option("--use-submit-api", help="Judge by SandboxFusion's /submit.")
]
UseComputeScore = Annotated[
    bool, typer.Option("--use-compute-score", help="Judge by verl's rules.")
]
_SCRIPTS = "Flags as in verl's scripts (with - or _)"
Engine = Annotated[
    str | None,
    typer.Option(
        "--rollout",
        rich_help_panel=_SCRIPTS,
        help="Engine: vllm or sglang.",
    ),
]
TensorParallelSize = Annotated[
    int | None,
    typer.Option("--tensor-parallel-size", rich_help_panel=_SCRIPTS, help="GPUs per replica."),
]
GpusPerNode = Annotated[
    int | None, typer.Option("--n-gpus", rich_help_panel=_SCRIPTS, help="GPUs per node.")
]
SandboxUrl = Annotated[
    str | None, typer.Option("--sandbox-url", rich_help_panel=_SCRIPTS, help="The sandbox.")
]
OutputDir = Annotated[
    str | None, typer.Option("--output-dir", rich_help_panel=_SCRIPTS, help="As --output.")
]
MaxConcurrentRequests = Annotated[
    int | None,
    typer.Option(
        "--max-concurrent-requests",
        rich_help_panel=_SCRIPTS,
        help="Requests to the generator in flight.",
    ),
]
_SHORT = "Short for keys of the config"
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, rich_help_panel=_SHORT, help="Only the first N problems of each data set."
    ),
]
Samples = Annotated[
    int | None,
    typer.Option("--n", min=1, rich_help_panel=_SHORT, help="Answers per problem, for pass@k."),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", min=0, rich_help_panel=_SHORT, help="Of sampling; 0 (default) is greedy."
    ),
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", min=0, max=1, rich_help_panel=_SHORT, help="Nucleus sampling."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, rich_help_panel=_SHORT, help="Tokens of an answer."),
]
AllowUnlocked = Annotated[
    bool,
    typer.Option("--allow-unlocked", help="Accept data that differs from data.lock and record it."),
]


_DATA = "data/eval"


def default_data() -> list[str]:
    """The data sets in ``data/eval`` that are for evaluation, where ``plumb data prepare`` wrote.

    Raises:
        ConfigError: There are none.
    """
    if Path(_DATA).is_dir():
        # Imported here because the commands that are given data need no roles.
        from shared.data_roles import DataRole, dataset_roles
        from shared.datasets import parquet_files

        files = parquet_files(_DATA)
        found = [file for file in files if DataRole.TRAIN not in dataset_roles(file).values()]
        if found:
            return found
    raise ConfigError(
        f"no data sets: `plumb data prepare --config configs/data.yaml` writes some to {_DATA}, "
        "where they are found; or give --data PATH, plumb run also --dataset NAME"
    )


def server_and_data(base_url: list[str] | None, data: list[str] | None) -> list[str]:
    """Convert ``--base-url`` and ``--data`` to ``key=value`` overrides."""
    given = {
        "generation.base_urls": base_url and _yaml_list(base_url),
        "generation.backend": base_url and "openai",
        "data.eval_files": data and _yaml_list(data),
    }
    return [f"{key}={value}" for key, value in given.items() if value]


def with_name(config: Config, overridden: Collection[str]) -> Config:
    """A name or folder of the command line replaces both of the file."""
    run, output = config.run, config.output
    if "output.dir" in overridden and "run.name" not in overridden:
        run = run.model_copy(update={"name": ""})
    if "run.name" in overridden and "output.dir" not in overridden:
        output = output.model_copy(update={"dir": ""})
    return config.model_copy(update={"run": run, "output": output})


def with_method(
    config: Config,
    name: str | None,
    submit: bool,
    compute_score: bool,
    overrides: Sequence[str] = (),
) -> Config:
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
    method = method_named(chosen.pop())
    flags_as_overrides({"method": ("judge.method", method)}, overrides)
    return judged_by(config, method)


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
    if config.generation.backend != "verl":
        flags_as_overrides({"--model": ("generation.model", name)}, overrides)
        generation = config.generation.model_copy(update={"model": name})
        return config.model_copy(update={"generation": generation})
    flags_as_overrides({"--model": ("actor_rollout_ref.model.path", name)}, overrides)
    weights = config.actor_rollout_ref.model.model_copy(update={"path": name})
    engines = config.actor_rollout_ref.model_copy(update={"model": weights})
    config = config.model_copy(update={"actor_rollout_ref": engines})
    if "generation.model" in overridden_keys(overrides):
        return config
    # The name of the config's own model would be wrong.
    generation = config.generation.model_copy(update={"model": ""})
    return config.model_copy(update={"generation": generation})


def yaml_string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _yaml_list(values: list[str]) -> str:
    return f"[{','.join(yaml_string(value) for value in values)}]"
