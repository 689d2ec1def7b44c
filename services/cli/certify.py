"""`plumb data certify`: how often the tests of a set reject wrong and accept right programs."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Argument, Option

from services.cli.console import display, plain_table, say, shown
from services.cli.data import known_sets
from services.cli.options import Overrides
from services.cli.verification import judge_solutions
from services.data.certify.programs import (
    LEAST_SECONDS,
    ORIGINALS,
    Evidence,
    Kind,
    Program,
    agreed_outputs,
    certify_problem,
    on_inputs,
    probe,
    programs_of,
    read_labelled,
    with_outputs,
    with_time_limit,
)
from services.data.layouts.base import Record
from services.data.records import read_records, replace_text
from shared.analysis.bootstrap import ClusteredMean, bootstrap_intervals
from shared.certificates import (
    Certificate,
    ProblemCertificate,
    Rate,
    certificate_file,
    rates_of,
    right_shares,
    wrong_shares,
)
from shared.config import RULES, load_config
from shared.datasets import read_dataset
from shared.errors import DataError, data_error
from shared.finished_run import FinishedRun
from shared.function_plan import fault_of
from shared.run_record import make_plan
from shared.schemas import StdioTests
from shared.statuses import FinalStatus
from shared.versions import git_commit, versions_of

_SHOWN = 10
_LEFT_OUT = "characters left out"
# Many mutants never end, so they have limits by the time of their originals.
_LIMITED = ("judge.problem_limits=true", "judge.confirm_timeouts=false", "judge.max_timeouts=1")
# An original may not end on some generated inputs; judging continues with the next inputs.
_INPUTS = (*_LIMITED[:2], "judge.max_timeouts=6", "output.cases=all")


class _Choices(NamedTuple):
    """Choices of the command; ``mutants`` and ``inputs`` are per problem, at most."""

    mutants: int
    inputs: int
    seed: int
    overrides: Sequence[str]


def certify(
    data: Annotated[str, Argument(metavar="SET", help="Prepared file, or name of a known set.")],
    overrides: Overrides = None,
    programs: Annotated[
        str | None, Option(help="JSONL of labelled programs: problem_id, completion, correct.")
    ] = None,
    mutants: Annotated[int, Option(min=0, help="Mutants per problem, at most.")] = 40,
    inputs: Annotated[int, Option(min=0, help="Generated inputs per problem, at most.")] = 60,
    seed: Annotated[int, Option(help="Of the choice of mutants and inputs.")] = 0,
    output: Annotated[str | None, Option(help="Folder of the runs; data/certify/<set>.")] = None,
) -> None:
    """Measure how often a set's tests reject wrong programs and accept right ones."""
    file = data if data.endswith(".parquet") else known_sets([data], None)[0].file
    read_dataset(file)  # checks what no record is checked for: tests, and ids that repeat
    records = list(read_records(file))
    datasets = {record.problem.dataset for record in records}
    if len(datasets) != 1:
        raise data_error(file, f"{len(datasets)} data sets; certify files of one")
    name = datasets.pop()
    folder = Path(output or f"data/certify/{name}")
    choices = _Choices(mutants, inputs, seed, overrides or [])
    evidence = _evidence(choices, programs, name, records)
    _judge(choices, folder, evidence)
    certificate = _certificate(choices, name, evidence.values())
    path = certificate_file(file)
    replace_text(path, certificate.model_dump_json(indent=2) + "\n")
    _print_certificate(certificate)
    say(path)


def _evidence(
    choices: _Choices, file: str | None, dataset: str, records: Sequence[Record]
) -> dict[str, Evidence]:
    """The programs of each problem, without verdicts; none if its tests are at fault."""
    labelled = read_labelled(file, dataset) if file else {}
    ids = {record.problem.problem_id for record in records}
    if file and not labelled.keys() & ids:
        raise DataError(f"{file}: none of its programs belongs to a problem of the set")
    evidence: dict[str, Evidence] = {}
    for record in records:
        name = record.problem.problem_id
        evidence[name] = Evidence(record.problem, [])
        if fault_of(record.problem.tests) is None:
            evidence[name].programs = programs_of(
                record, labelled.get(name, []), most_mutants=choices.mutants, seed=choices.seed
            )
    return evidence


def _judge(choices: _Choices, folder: Path, evidence: Mapping[str, Evidence]) -> None:
    """Judge programs by the problem's tests, and where these do not decide, by generated inputs.

    Each step is a separate run with its folder, so that a repeated command resumes it.
    """

    def runs(step: str, programs: Sequence[Program], *overrides: str) -> Iterator[FinishedRun]:
        chosen = [*choices.overrides, *overrides]
        return judge_solutions(programs, folder / step, chosen, name=step, quiet=True)

    everything = [program for entry in evidence.values() for program in entry.programs]
    labelled = [program for program in everything if program.kind is not Kind.MUTANT]
    for run in runs("labelled", labelled):
        for verdict in run.verdicts():
            evidence[verdict.problem_id].own[verdict.sample_index] = verdict
    mutants = [mutant for entry in evidence.values() for mutant in _limited_mutants(entry)]
    for run in runs("mutants", mutants, *_LIMITED):
        for verdict in run.verdicts():
            evidence[verdict.problem_id].own[verdict.sample_index] = verdict
    originals: dict[str, list[Program]] = {}
    for name, entry in evidence.items():
        right = [program for program in entry.accepted() if program.kind is Kind.RIGHT]
        if right and choices.inputs and any(map(entry.is_open, entry.programs)):
            generated = probe(entry.problem, count=choices.inputs, seed=choices.seed)
            if generated is not None:
                limited = with_time_limit(generated, LEAST_SECONDS)
                originals[name] = [on_inputs(program, limited) for program in right[:ORIGINALS]]
    probes = [program for group in originals.values() for program in group]
    outputs, slowest = _outputs(probes, runs("inputs", probes, *_INPUTS))
    open_questions: list[Program] = []
    for name, group in originals.items():
        entry, tests = evidence[name], evidence[name].problem.tests
        checked = isinstance(tests, StdioTests) and tests.has_checker and not tests.fn_name
        printed = [outputs.get((name, program.number), {}) for program in group]
        if agreed := agreed_outputs(printed, one_answer=not checked):
            entry.originals, entry.inputs = len(group), len(agreed)
            problem = with_time_limit(with_outputs(entry.problem, agreed), 10 * slowest[name])
            uncertain = filter(entry.is_open, entry.programs)
            open_questions += [on_inputs(program, problem) for program in uncertain]
    for run in runs("generated", open_questions, *_LIMITED):
        for verdict in run.verdicts():
            evidence[verdict.problem_id].generated[verdict.sample_index] = verdict


def _limited_mutants(entry: Evidence) -> Iterator[Program]:
    """The mutants of accepted programs, with a time limit by the slowest of these."""
    parents = {program.parent for program in entry.programs}
    accepted = {p.number for p in entry.accepted() if p.number in parents}
    if accepted:
        slowest = max(entry.own[number].cpu_time or 5 for number in accepted)
        limited = with_time_limit(entry.problem, 2 * slowest)
        mutants = (program for program in entry.programs if program.parent in accepted)
        yield from (replace(program, problem=limited) for program in mutants)


def _outputs(
    programs: Sequence[Program], runs: Iterable[FinishedRun]
) -> tuple[Mapping[tuple[str, int], Mapping[str, str]], Mapping[str, float]]:
    """What programs print by input, without those on which they fail or print too much.

    Beside it, the CPU seconds of each problem's slowest case.
    """
    printed: defaultdict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    slowest: defaultdict[str, float] = defaultdict(float)
    ended = (FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER)
    tests = {program.problem.problem_id: program.problem.tests for program in programs}
    inputs = {name: own.inputs for name, own in tests.items() if isinstance(own, StdioTests)}
    for case in (case for run in runs for case in run.cases()):
        if case.status in ended and case.actual and _LEFT_OUT not in case.actual:
            text, name = inputs[case.problem_id][case.case_index], case.problem_id
            printed[name, case.sample_index][text] = case.actual
            slowest[name] = max(slowest[name], case.cpu_time or 0.0)
    return printed, slowest


# The certificate


def _certificate(choices: _Choices, dataset: str, evidence: Collection[Evidence]) -> Certificate:
    certified = [certify_problem(entry) for entry in evidence]
    problems = [entry.problem for entry in evidence]
    digest = hashlib.sha256()
    for judged in evidence:
        for program in judged.programs:
            name, solution = program.problem.problem_id, program.solution
            parts = (name, program.number, program.kind, solution.language, solution.code)
            digest.update("\0".join(map(str, parts)).encode("utf-8", "surrogatepass") + b"\0")
    judge = load_config(None, choices.overrides).judge.for_dataset(dataset)
    return Certificate(
        dataset=dataset,
        data_sha256=make_plan(problems, lambda _: [0]).datasets[0].sha256,
        programs_sha256=digest.hexdigest(),
        rules=RULES,
        method=judge.method,
        checker=judge.effective_checker,
        seed=choices.seed,
        mutants=choices.mutants,
        inputs=choices.inputs,
        versions=versions_of(["plumbline"]),
        git_commit=git_commit(),
        true_negative=_mean(wrong_shares(certified)),
        true_positive=_mean(right_shares(certified)),
        problems=certified,
    )


def _mean(shares: Sequence[float | None]) -> Rate | None:
    """Mean over problems, with a bootstrap over problems."""
    totals = [share or 0.0 for share in shares]
    counts = [int(share is not None) for share in shares]
    if not sum(counts):
        return None
    rate = sum(totals) / sum(counts)
    [interval] = bootstrap_intervals([ClusteredMean(totals, counts, bounded=True)], [rate])
    return Rate(rate=rate, n=sum(counts), ci95=interval)


# Output


def _print_certificate(certificate: Certificate) -> None:
    """Print the weakest problems first, then the set's rates; the file has the survivors."""
    weak = sorted(
        (p for p in certificate.problems if p.trust is not None and p.trust < 1),
        key=lambda problem: (problem.trust, problem.problem_id),
    )
    headings = ["problem", "wrong rejected", "95 % interval", "right accepted", "unknown"]
    table = plain_table(headings, headings[:1])
    for problem in weak[:_SHOWN]:
        table.add_row(*map(shown, _row(problem)))
    if weak:
        display(table)
    if len(weak) > _SHOWN:
        say(f"… and {len(weak) - _SHOWN} more with wrong verdicts")
    for problem in certificate.problems:
        for bad in problem.bad_labels:
            line = f"bad label, left out: {problem.problem_id}, {bad.source}: {bad.reason}"
            say(line, "yellow")
    unknown = [problem.problem_id for problem in certificate.problems if problem.trust is None]
    if unknown:
        names = ", ".join(unknown[:_SHOWN]) + (", …" if len(unknown) > _SHOWN else "")
        line = f"unknown, for want of right or of wrong programs: {len(unknown)} ({names})"
        say(line, "yellow")
    _print_rate("wrong programs rejected", certificate.true_negative)
    _print_rate("right programs accepted", certificate.true_positive)
    if rates_of(certificate.problems):
        rejected = sum(problem.wrong_rejected for problem in certificate.problems)
        mutants = sum(problem.unknown for problem in certificate.problems)
        say(f"{rejected} wrong programs rejected, {mutants} mutants unknown")


def _row(problem: ProblemCertificate) -> tuple[str, ...]:
    rejected, right = problem.wrong_rejected, problem.right_accepted
    low, high = (problem.true_negative and problem.true_negative.ci95) or (0.0, 1.0)
    return (
        problem.problem_id,
        f"{rejected} of {rejected + problem.wrong_accepted}",
        f"{low:.0%}–{high:.0%}",
        f"{right} of {right + problem.right_rejected}",
        f"{problem.unknown}",
    )


def _print_rate(label: str, rate: Rate | None) -> None:
    if rate is None:
        say(f"{label}: unknown")
        return
    interval = "{:.1%} … {:.1%}".format(*rate.ci95) if rate.ci95 else "no interval"
    say(f"{label}: {rate.rate:.1%} ({interval}), mean of {rate.n} problems")
