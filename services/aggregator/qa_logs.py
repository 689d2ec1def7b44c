"""The QA logs of a run: samples of each status with question, answer and outcome."""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from services.aggregator.qa_records import QaRecord, RunFacts, qa_record, run_facts
from services.aggregator.strata import Choice, choose
from shared.artifacts import QA_LOGS, OutputFolder
from shared.ledger import Ledger
from shared.plan import PlannedDataset, RunPlan
from shared.result_config import QaLogsConfig
from shared.run_record import QaLogRecord, RunMeta
from shared.schemas import SampleId, sha256


def write_qa_logs(
    folder: OutputFolder, ledger: Ledger, plan: RunPlan, meta: RunMeta
) -> dict[str, QaLogRecord]:
    """Write ``qa_logs/<dataset>_<n>.jsonl`` for each data set; n is the total of its quota.

    Logs of earlier quotas are removed.

    Returns:
        For ``run.json``: by data set the file, and how many of which status were wanted, were
        chosen, and stand in for others.

    Raises:
        OutputError: The folder cannot be written.
    """
    config, facts = meta.config.qa_logs, run_facts(meta)
    written: dict[str, QaLogRecord] = {}
    for dataset in plan.datasets:
        name = file_name(dataset.name, config.quota(dataset.name).total)
        choice = _choice(ledger, dataset, config, meta.seed)
        folder.write_jsonl(f"{QA_LOGS}/{name}", _records(ledger, choice.samples, facts, config))
        written[dataset.name] = QaLogRecord(
            file=f"{QA_LOGS}/{name}",
            wanted=dict(choice.wanted),
            chosen=dict(choice.chosen),
            filled=dict(choice.filled),
        )
    _remove_others(folder, {name: log.file for name, log in written.items()})
    return written


def file_name(dataset: str, total: int) -> str:
    """A data set's name may be longer than a file's, which is 255 bytes."""
    return f"{_stem(dataset)}_{total}.jsonl"


def _stem(dataset: str) -> str:
    stem = quote(dataset, safe="")
    return stem if len(stem) <= 200 else f"{stem[:160]}-{sha256(dataset)[:16]}"


def _choice(ledger: Ledger, dataset: PlannedDataset, config: QaLogsConfig, seed: int) -> Choice:
    statuses = {v.sample: v.final_status for v in ledger.verdicts(dataset.samples())}
    return choose(statuses, config.quota(dataset.name).by_status, seed)


def _records(
    ledger: Ledger, samples: Sequence[SampleId], facts: RunFacts, config: QaLogsConfig
) -> Iterator[QaRecord]:
    """Yield one record at a time: a problem's tests may have many megabytes."""
    for sample in samples:
        problem = ledger.problem(sample.dataset, sample.problem_id)
        generation, verdict = ledger.completion(sample), ledger.verdict(sample)
        # A runner that goes on with the run meanwhile takes samples back, and publishes it anew.
        if problem and generation and verdict:
            yield qa_record(problem, generation, verdict, facts, config)


def _remove_others(folder: OutputFolder, files: Mapping[str, str]) -> None:
    """Remove what earlier quotas of these data sets left; whatever else is there stays."""
    for dataset, current in files.items():
        pattern = re.compile(re.escape(_stem(dataset)) + r"_\d+\.jsonl")
        old = [name for name in folder.names(QA_LOGS) if pattern.fullmatch(name)]
        folder.remove(f"{QA_LOGS}/{name}" for name in old if f"{QA_LOGS}/{name}" != current)
