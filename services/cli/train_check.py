"""`plumb train-check`: compare a trainer's configuration with the protocol of a run."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated
from urllib.error import HTTPError
from urllib.request import Request

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from services.cli.console import JsonFile, display, printable, write_json
from services.cli.options import run_folder
from services.training.comparison import (
    compare,
    compare_environments,
    compare_judges,
    compare_rules,
)
from services.training.data_files import check_files
from services.training.mistakes import find_mistakes
from services.training.trainer_config import Finding, Kind, TrainerConfig, read_trainer_config
from shared.datasets import read_datasets
from shared.errors import FindingsError, ServiceError
from shared.finished_run import open_run
from shared.process_environment import open_directly
from shared.protocol import shown
from shared.redaction import redact_address
from shared.run_record import RunRecord
from shared.schemas import Problem, describe

_STYLES = {Kind.MISTAKE: "bold red", Kind.DIFFERENCE: "yellow", Kind.EXPECTED: "dim"}
_TIMEOUT = 10.0  # seconds
_LARGEST_ANSWER = 1 << 20


class _ServiceInfo(BaseModel):
    """The part of a reward service's ``/v1/info`` that is compared."""

    model_config = ConfigDict(extra="ignore")

    protocol: dict[str, JsonValue]
    environment: str = ""


def train_check(
    trainer: Annotated[
        str,
        Argument(help="verl's config: outputs/…/.hydra/config.yaml, or the output of `--cfg job`."),
    ],
    run: Annotated[str, Argument(help="Baseline: its folder or name.", callback=run_folder)],
    data: Annotated[
        list[str] | None, Option(help="Prepared files or folders, to check references with.")
    ] = None,
    reward: Annotated[str | None, Option(help="Address of a reward service to compare.")] = None,
    no_files: Annotated[
        bool, Option("--no-files", help="Leave out the data files, which are elsewhere.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare a trainer's config with a run; exit code 0: no mistake or difference, 1: some."""
    config = read_trainer_config(trainer)
    record = open_run(run).record
    problems = read_datasets(data) if data else []
    findings = list(_findings(config, record, problems, reward, files=not no_files))
    _print(findings)
    write_json(json_file, {"findings": [asdict(finding) for finding in findings]})
    counts = {kind: sum(finding.kind is kind for finding in findings) for kind in Kind}
    if counts[Kind.MISTAKE] or counts[Kind.DIFFERENCE]:
        raise FindingsError(
            f"mistakes: {counts[Kind.MISTAKE]}, differences: {counts[Kind.DIFFERENCE]}; "
            "training would not start from the measured baseline; see above"
        )


def _findings(
    config: TrainerConfig,
    record: RunRecord,
    problems: list[Problem],
    reward: str | None,
    *,
    files: bool,
) -> Iterator[Finding]:
    yield from find_mistakes(config)
    yield from compare(config, record)
    if files:
        yield from check_files(config, record, problems)
    if reward:
        service = _info_of(reward)
        yield from compare_judges(service.protocol, record)
        yield from compare_environments(service.environment, record)
    else:
        yield from compare_rules(record)


def _info_of(address: str) -> _ServiceInfo:
    """What a reward service judges by.

    Raises:
        ServiceError: It does not answer as a reward service does.
    """
    url = f"{address.rstrip('/')}/v1/info"
    place = f"reward service {redact_address(address)}"
    token = os.environ.get("PLUMBLINE_REWARD_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = Request(url, headers=headers)
        with open_directly(request, _TIMEOUT) as response:
            return _ServiceInfo.model_validate_json(response.read(_LARGEST_ANSWER))
    except ValidationError as error:
        raise ServiceError(f"{place} answered something else ({describe(error)})") from None
    except HTTPError as error:
        raise ServiceError(
            f"{place} answers {error.code} {error.reason}; check the address, and its token in "
            "PLUMBLINE_REWARD_TOKEN"
        ) from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        raise ServiceError(
            f"{place} does not answer ({cause}); start it, or leave it out"
        ) from None


def _print(findings: list[Finding]) -> None:
    if not findings:
        display("no difference")
        return
    # Keys are long, and a terminal may have 60 columns: a finding takes lines, not columns.
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    order = list(Kind)
    for finding in sorted(findings, key=lambda finding: order.index(finding.kind)):
        lines = [finding.subject, *_values(finding), finding.text]
        text = Text("\n".join(printable(line) for line in lines))
        table.add_row(Text(finding.kind), text, style=_STYLES[finding.kind])
    display(table)


def _values(finding: Finding) -> list[str]:
    """The line with the values that are compared, if there are any."""
    values = {"trainer": finding.trainer, "run": finding.run}
    compared = [
        f"{name}: {shown(value, 40)}" for name, value in values.items() if value is not None
    ]
    return [", ".join(compared)] if compared else []
