"""`plumb run`: generate completions, judge them, write the artifacts."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import typer

from services.cli.execute import RunRequest, execute
from services.cli.options import (
    AllowUnlocked,
    ConfigFile,
    Embedded,
    Force,
    MethodName,
    Output,
    Overrides,
    UseComputeScore,
    UseSubmit,
    with_method,
    yaml_string,
)
from services.runner.preflight import check_judging
from services.runner.problems import load_problems
from services.runner.prompts import check_templates
from shared.config import Config, load_config
from shared.errors import ConfigError, DataError
from shared.plan import make_plan
from shared.schemas import Problem
from shared.text import split_urls


def run(
    overrides: Overrides = None,
    config: ConfigFile = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option("--base-url", help="OpenAI-compatible server; may be given several times."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model to ask for.")] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Parquet file or folder of them.")
    ] = None,
    output: Output = None,
    embedded: Embedded = False,
    force: Force = False,
    method: MethodName = None,
    use_submit_api: UseSubmit = False,
    use_compute_score: UseComputeScore = False,
    allow_unlocked: AllowUnlocked = False,
) -> None:
    """Generate completions for every problem, judge them and write the artifacts."""
    if base_url is None and not embedded:
        base_url = split_urls(os.environ.get("GENERATOR_URLS", "")) or None
    options = _as_overrides(base_url, model, data, output)
    resolved = load_config(config, [*options, *(overrides or [])])
    resolved = with_method(resolved, method, use_submit_api, use_compute_score)
    if not resolved.data.eval_files:
        raise ConfigError("no data sets: give --data PATH, or data.eval_files in the config")
    _check_generation(resolved, embedded=embedded)
    check_templates(resolved.data)
    loaded = load_problems(resolved.data, resolved.data.eval_files, allow_unlocked=allow_unlocked)
    problems = _limited(loaded.problems, resolved.data.limit)
    check_judging(resolved, problems)
    n = resolved.actor_rollout_ref.rollout.n
    request = RunRequest(
        config=resolved,
        problems=problems,
        plan=make_plan(problems, lambda _problem: range(n)),
        embedded=embedded,
        force=force,
        source=_recordings_hash(resolved),
        provenance=loaded.provenance,
        notes=loaded.notes,
    )
    execute(request)


def _check_generation(config: Config, *, embedded: bool) -> None:
    generation = config.generation
    if generation.backend == "replay":
        if not embedded:
            raise ConfigError(
                "generation.backend 'replay' needs --embedded, which starts it; "
                "without it, give generation.base_urls"
            )
        return  # recorded samples may differ at any temperature
    if not generation.base_urls and (generation.backend == "openai" or not embedded):
        raise ConfigError(
            "no generator: give --base-url URL, or generation.base_urls in the config"
        )
    config.actor_rollout_ref.rollout.check_sampling()


def _as_overrides(
    base_url: list[str] | None, model: str | None, data: list[str] | None, output: str | None
) -> list[str]:
    """Convert command-line options to ``key=value`` overrides."""
    given = {
        "generation.base_urls": base_url and _yaml_list(base_url),
        "generation.backend": base_url and "openai",
        "generation.model": model and yaml_string(model),
        "data.eval_files": data and _yaml_list(data),
        "output.dir": output and yaml_string(output),
    }
    return [f"{key}={value}" for key, value in given.items() if value]


def _yaml_list(values: list[str]) -> str:
    return f"[{','.join(yaml_string(value) for value in values)}]"


def _limited(problems: list[Problem], limit: int | None) -> list[Problem]:
    """The first ``limit`` problems of each data set."""
    if limit is None:
        return problems
    seen: dict[str, int] = {}
    kept = []
    for problem in problems:
        seen[problem.dataset] = seen.get(problem.dataset, 0) + 1
        if seen[problem.dataset] <= limit:
            kept.append(problem)
    return kept


def _recordings_hash(config: Config) -> str:
    """Hex SHA-256 of the file that the backend ``replay`` answers from; empty for others."""
    if config.generation.backend != "replay":
        return ""
    path = config.generation.replay.completions
    try:
        return hashlib.sha256(Path(os.fspath(path)).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"generation.replay.completions: cannot read {path!r}: {error.strerror}"
        ) from None
