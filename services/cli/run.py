"""`plumb run`: generate completions, judge them, write the artifacts."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from services.cli import options
from services.cli.execute import RunRequest, execute
from services.runner.preflight import check_judging, load_problems
from shared.config import Config, Method, load_config
from shared.config_files import overridden_keys
from shared.errors import ConfigError, DataError
from shared.manifests import hash_file
from shared.prompts import check_templates
from shared.run_record import RunPlan, make_plan
from shared.verl_keys import notices

if TYPE_CHECKING:
    from services.runner.until_decided import UntilDecided

_ROLLOUT = "actor_rollout_ref.rollout"


@options.key_options()
def run(
    overrides: options.Overrides = None,
    config: options.ConfigFile = None,
    base_url: options.BaseUrl = None,
    model: options.Model = None,
    data: options.DataPaths = None,
    dataset: Annotated[
        list[str] | None,
        Option(help="Public data set, such as humaneval; fetched and prepared if it is not there."),
    ] = None,
    data_config: Annotated[
        str | None, Option(help="Data sets of --dataset, as for plumb data prepare.")
    ] = None,
    embedded: options.Embedded = False,
    force: options.Force = False,
    allow_unlocked: options.AllowUnlocked = False,
    until_decided: Annotated[Path | None, Option(help="Stop when this policy is decided.")] = None,
    baseline: Annotated[str | None, Option(help="Run that --until-decided compares with.")] = None,
    flags: Sequence[str] = (),
    method: Method | None = None,
) -> None:
    """Generate completions for every problem, judge them and write the artifacts."""
    base_url = options.named_servers(base_url, embedded)
    keys = overrides or []
    fetched, locks = _known(dataset or [], data_config)
    flagged = [*options.server_and_data(base_url, [*(data or []), *fetched]), *locks]
    resolved = load_config(config, [*flagged, *flags, *keys])
    generator = {"generation.base_urls", "generation.backend"} & {
        *overridden_keys([*flagged, *keys])
    }
    if (
        f"{_ROLLOUT}.name" in overridden_keys(flags)
        and resolved.generation.backend == "openai"
        and not generator  # the servers of a file are what --rollout replaces
    ):
        resolved = options.with_value(resolved, "generation.base_urls", [])
        resolved, embedded = options.with_value(resolved, "generation.backend", "verl"), True
    resolved = options.with_model(resolved, model, keys)
    overridden = overridden_keys([*flags, *keys])
    resolved = _named_as_part(options.with_name(resolved, overridden), overridden)
    resolved = options.with_method(resolved, method, keys)
    if resolved.data.completions:
        raise ConfigError(
            f"data.completions names completions to judge ({resolved.data.completions}), and plumb "
            "run generates its own; give the config to plumb judge"
        )
    if not resolved.data.eval_files:
        resolved = options.with_value(resolved, "data.eval_files", options.default_data())
    _check_generation(resolved, embedded=embedded)
    check_templates(resolved.data)
    loaded = load_problems(resolved.data, resolved.data.eval_files, allow_unlocked=allow_unlocked)
    problems = loaded.limited(resolved.data.limit)
    check_judging(resolved, problems)
    samples = range(resolved.actor_rollout_ref.rollout.n)
    plan = make_plan(problems, lambda _problem: samples)
    early_stop = _early_stop(until_decided, baseline, plan, resolved.run.seed)
    request = RunRequest(
        config=resolved,
        problems=problems,
        plan=plan,
        embedded=embedded,
        force=force,
        source=_recordings_hash(resolved),
        provenance=loaded.provenance,
        notes=[
            *notices(resolved.run.verl_keys),
            *loaded.notes,
            *(early_stop.notes if early_stop else ()),
        ],
        sandboxes=options.own_sandboxes(resolved, [*flags, *keys]),
        early_stop=early_stop,
    )
    execute(request)
    if early_stop:
        print(
            f"decide: plumb gate {baseline} {request.config.output_dir} --sequential "
            f"--policy {until_decided}"
        )


def _early_stop(
    policy: Path | None, baseline: str | None, plan: RunPlan, seed: int
) -> "UntilDecided | None":
    if policy is None or baseline is None:
        if policy is not None or baseline is not None:
            raise ConfigError("--until-decided POLICY and --baseline RUN need each other")
        return None
    # Imported here because numpy takes long to import.
    from services.runner.until_decided import UntilDecided
    from shared.analysis.gate import NamedPolicy, read_policy
    from shared.analysis.runs import read_runs

    (compared,) = read_runs([options.run_folder(baseline)])
    return UntilDecided(NamedPolicy(policy.name, read_policy(policy)), compared, plan, seed)


def _known(names: list[str], config: str | None) -> tuple[list[str], list[str]]:
    """The files of data sets named with ``--dataset``, and an override with their lock."""
    if not names:
        if config is not None:
            raise ConfigError("--data-config describes the sets of --dataset; name one of them")
        return [], []
    # Imported here because the libraries that prepare data take seconds to import.
    from services.cli.data import known_sets

    sets = known_sets(names, config)
    locks = {prepared.lock for prepared in sets}
    # A run has one lock. Each file was just compared with its own.
    lock = options.yaml_string(locks.pop()) if len(locks) == 1 else "null"
    return [prepared.file for prepared in sets], [f"data.lock={lock}"]


def _named_as_part(config: Config, overridden: Sequence[str]) -> Config:
    """Add ``data.limit`` to the run's name and folder, unless the command line has another."""
    named = {"run.name", "output.dir"} & {*overridden}
    if config.data.limit is None or "data.limit" not in overridden or named:
        return config
    part = f"_first{config.data.limit}"
    folder = config.output_dir.rstrip("/") + part
    return options.with_value(
        options.with_value(config, "run.name", config.name + part), "output.dir", folder
    )


def _check_generation(config: Config, *, embedded: bool) -> None:
    generation = config.generation
    if generation.backend == "verl" and embedded and not generation.verl.python:
        engine = config.actor_rollout_ref.rollout.name
        if find_spec("verl") is None:
            raise ConfigError(
                f"verl's {engine} is to generate, and verl is not installed here: `pip install "
                f'"verl[{engine}]==0.9.1"` into this environment, or `make install-verl` and '
                "generation.verl.python=.venv-verl/bin/python (docs/generation.md); or give "
                "--base-url URL of a server"
            )
    if generation.backend == "replay":
        if not embedded:
            raise ConfigError(
                "generation.backend 'replay' needs --embedded, which starts it; "
                "without it, give generation.base_urls"
            )
        return  # recorded samples may differ at any temperature
    if not generation.base_urls and (generation.backend == "openai" or not embedded):
        start = ", or generation.backend=verl to start the config's engine" if embedded else ""
        raise ConfigError(
            f"no generator: give --base-url URL, or generation.base_urls in the config{start}"
        )
    config.actor_rollout_ref.rollout.check_sampling()


def _recordings_hash(config: Config) -> str:
    """Hex SHA-256 of the file that the backend ``replay`` answers from; empty for others."""
    if config.generation.backend != "replay":
        return ""
    path = config.generation.replay.completions
    if not path:
        raise ConfigError(
            "generation.backend 'replay' answers from a file: name it with "
            "generation.replay.completions"
        )
    try:
        return hash_file(path).sha256
    except DataError as error:
        raise DataError(f"generation.replay.completions: {error}") from None
