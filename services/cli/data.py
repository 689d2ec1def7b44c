"""`plumb data`: import, prepare, check and export data sets."""

from typing import Annotated

import typer

from services.cli.options import AllowUnlocked, ConfigFile, Overrides
from services.data.config import LayoutKind, parse_dates
from services.data.importer import import_dataset
from services.training.export import Purpose, TestsForm
from shared.data_roles import DataRole

app = typer.Typer(help="Prepare, check and export the data sets of a run.", no_args_is_help=True)

DataConfigFile = Annotated[
    str | None, typer.Option("--config", help="YAML config, such as configs/data.yaml.")
]
Allow = Annotated[
    str | None, typer.Option("--allow", help="File of reviewed overlaps, each with a reason.")
]


@app.callback()
def data() -> None:
    """Prepare, check and export the data sets of a run."""


@app.command("import")
def import_(
    kind: Annotated[LayoutKind, typer.Argument(help="Layout of the source.")],
    source: Annotated[str, typer.Option("--source", help="Published file or folder.")],
    output: Annotated[str, typer.Option("--output", help="Folder, or a .parquet file.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the data set.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="train, valid or test.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="MBPP: task ids, e.g. 11-210.")] = None,
    include_generated: Annotated[
        bool, typer.Option("--include-generated", help="CodeContests: add the generated tests.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="LiveCodeBench: first day of a contest.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="LiveCodeBench: last day, e.g. 2025-01-31.")
    ] = None,
    role: Annotated[
        DataRole, typer.Option("--role", help="train: models may be trained on it.")
    ] = DataRole.EVAL,
) -> None:
    """Read a public file into DATASET.parquet."""
    from services.cli.display import printable

    result = import_dataset(
        kind,
        source,
        output,
        name=name,
        split=split,
        ids=ids,
        include_generated=include_generated,
        contest_dates=parse_dates(since, until),
        role=role,
    )
    print(f"{result.path}: {result.problems} problems of {result.dataset}")
    for row in result.dropped:
        print(printable(f"{row.place}: dropped {row.problem_id}: {row.reason}"))
    for line in result.findings:
        print(printable(line))


@app.command()
def prepare(
    overrides: Overrides = None,
    config: DataConfigFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
    allow: Allow = None,
    verify_solutions: Annotated[
        bool,
        typer.Option("--verify-solutions", help="Also judge the reference solutions (embedded)."),
    ] = False,
) -> None:
    """Fetch, standardize, check and write all data sets, with manifests and the audit report."""
    from services.cli.data_commands import prepare_sets

    prepare_sets(
        config, overrides or [], offline=offline, allow=allow, verify_solutions=verify_solutions
    )


@app.command()
def check(
    files: Annotated[
        list[str] | None, typer.Argument(help="Prepared files or folders (default: the config's).")
    ] = None,
    config: DataConfigFile = None,
    allow: Allow = None,
) -> None:
    """Check that prepared sets match lock and manifests, and do not overlap."""
    from services.cli.data_commands import check_sets

    check_sets(files or [], config, allow)


@app.command()
def contamination(
    data: Annotated[list[str], typer.Option("--data", help="Prepared files or folders.")],
    against: Annotated[list[str], typer.Option("--against", help="Training corpus; repeatable.")],
    min_share: Annotated[
        float, typer.Option("--min-share", help="Share of a prompt's n-grams in one document.")
    ] = 0.3,
    size: Annotated[int, typer.Option("--ngram", help="Words per n-gram.")] = 13,
    processes: Annotated[
        int | None, typer.Option("--processes", help="Worker processes (default: one per core).")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", help="JSON file for the full report.")
    ] = None,
) -> None:
    """Find problems in a training corpus, which may be larger than memory."""
    from services.cli.data_commands import check_corpus

    check_corpus(data, against, size=size, min_share=min_share, processes=processes, output=output)


@app.command()
def certify(
    data: Annotated[
        str, typer.Argument(metavar="SET", help="Prepared file, or the name of a known set.")
    ],
    overrides: Overrides = None,
    programs: Annotated[
        str | None,
        typer.Option(
            "--programs", help="JSONL of labelled programs: problem_id, completion, correct."
        ),
    ] = None,
    mutants: Annotated[
        int, typer.Option("--mutants", min=0, help="Mutants per problem, at most.")
    ] = 40,
    inputs: Annotated[
        int, typer.Option("--inputs", min=0, help="Generated inputs per problem, at most.")
    ] = 60,
    seed: Annotated[int, typer.Option("--seed", help="Of the choice of mutants and inputs.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("--output", help="Folder of the runs (default: data/certify/<set>)."),
    ] = None,
) -> None:
    """Measure how often a set's tests reject wrong programs and accept right ones."""
    from services.cli.certify import CertifyRequest, certify_set

    certify_set(
        CertifyRequest(
            data=data,
            programs=programs,
            mutants=mutants,
            inputs=inputs,
            seed=seed,
            output=output,
            overrides=overrides or [],
        )
    )


@app.command("export")
def export_(
    overrides: Overrides = None,
    config: ConfigFile = None,
    train: Annotated[
        list[str] | None, typer.Option("--train", help="Prepared file or folder; repeatable.")
    ] = None,
    validation: Annotated[
        list[str] | None, typer.Option("--validation", help="The same for validation.")
    ] = None,
    output: Annotated[str, typer.Option("--output", help="Folder for the files.")] = "",
    tests: Annotated[
        TestsForm, typer.Option("--tests", help="The service has the tests, or the file has them.")
    ] = TestsForm.REFERENCE,
    agent_name: Annotated[
        str | None, typer.Option("--agent-name", help="verl's agent loop, such as tool_agent.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    allow_unlocked: AllowUnlocked = False,
    allow_eval: Annotated[
        bool, typer.Option("--allow-eval", help="Accept evaluation data as training data.")
    ] = False,
) -> None:
    """Write prepared sets as a trainer's files, with the prompts of a run's config."""
    from services.cli.training_data import ExportRequest, export_training_data

    export_training_data(
        ExportRequest(
            config=config,
            overrides=overrides or [],
            paths={Purpose.TRAIN: train or [], Purpose.VALIDATION: validation or []},
            output=output,
            tests=tests,
            agent_name=agent_name,
            force=force,
            allow_unlocked=allow_unlocked,
            allow_eval=allow_eval,
        )
    )
