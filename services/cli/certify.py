"""`plumb data certify`: how often the tests of a set reject wrong and accept right programs."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from services.cli.console import plain_table, say, shown, stdout_console
from services.cli.data import known_sets
from services.cli.options import Overrides
from services.cli.verification import SolutionJudge
from services.data.certify.evidence import Evidence, certify_problem
from services.data.certify.programs import (
    LEAST_SECONDS,
    ORIGINALS,
    Kind,
    Program,
    agreed_outputs,
    on_inputs,
    probe,
    programs_of,
    read_labelled,
    with_outputs,
    with_time_limit,
)
from services.data.layouts.base import Record
from services.data.manifests import replace_text
from services.data.records import ReferenceSolution, read_records
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
from shared.function_plan import fault_of
from shared.run_record import make_plan
from shared.schemas import Problem, StdioTests, Verdict
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
    file = data if data.endswith(".parquet") else known_sets([data], None)[0].file
    read_dataset(file)  # checks what no record is checked for: tests, and ids that repeat
    records = list(read_records(file))
    datasets = {record.problem.dataset for record in records}
    if len(datasets) != 1:
        raise data_error(file, f"{len(datasets)} data sets; certify files of one")
    name = datasets.pop()
    folder = Path(output or f"data/certify/{name}")
    choices = _Choices(mutants, inputs, seed, overrides or [])
    evidence = _Judged(choices, folder, _programs(choices, programs, name, records)).evidence()
    certificate = _certificate(choices, name, [record.problem for record in records], evidence)
    path = certificate_file(file)
    replace_text(path, certificate.model_dump_json(indent=2) + "\n")
    console = stdout_console()
    _print_certificate(console, certificate)
    say(console, path)


def _programs(
    choices: _Choices, file: str | None, dataset: str, records: Sequence[Record]
) -> dict[str, list[Program]]:
    labelled = read_labelled(file, dataset) if file else {}
    ids = {record.problem.problem_id for record in records}
    if file and not labelled.keys() & ids:
        raise DataError(f"{file}: none of its programs belongs to a problem of the set")
    return {
        record.problem.problem_id: programs_of(
            record,
            labelled.get(record.problem.problem_id, []),
            most_mutants=choices.mutants,
            seed=choices.seed,
        )
        for record in records
        if fault_of(record.problem.tests) is None
    }


class _Judged:
    """Judges programs by the problem's tests, then those that need it by generated inputs.

    Each step is a separate run with its folder, so that a repeated command resumes it.
    """

    def __init__(
        self, choices: _Choices, folder: Path, programs: Mapping[str, list[Program]]
    ) -> None:
        self._choices = choices
        self._folder = folder
        self._programs = programs

    def evidence(self) -> dict[str, Evidence]:
        """The evidence on each problem that has programs."""
        everything = [program for group in self._programs.values() for program in group]
        labelled = [program for program in everything if program.kind is not Kind.MUTANT]
        own = self._verdicts("labelled", [program.judged for program in labelled])
        changed: list[ReferenceSolution] = []
        for name, group in self._programs.items():
            parents = {program.parent for program in group if program.parent is not None}
            accepted = {n: v for n in parents if (v := own[name].get(n)) and v.accepted}
            if accepted:
                slowest = max(verdict.cpu_time or 5 for verdict in accepted.values())
                limited = with_time_limit(group[0].problem, 2 * slowest)
                mutants = [program for program in group if program.parent in accepted]
                changed += [replace(program.judged, problem=limited) for program in mutants]
        for name, verdicts in self._verdicts("mutants", changed, *_LIMITED).items():
            own[name] |= verdicts
        problems, originals = self._generated(own)
        open_questions = [
            on_inputs(program, problems[program.problem.problem_id])
            for program in everything
            if program.problem.problem_id in problems and _is_open(program, own)
        ]
        generated = self._verdicts("generated", open_questions, *_LIMITED)
        return {
            name: Evidence(
                group[0].problem,
                group,
                own[name],
                generated[name],
                originals.get(name, 0),
                problems[name].tests.cases if name in problems else 0,
            )
            for name, group in self._programs.items()
            if group
        }

    def _generated(
        self, own: Mapping[str, Mapping[int, Verdict]]
    ) -> tuple[dict[str, Problem], dict[str, int]]:
        """Problems with generated inputs on which their accepted originals agree."""
        choices = self._choices
        chosen: dict[str, list[Program]] = {}
        probes: dict[str, Problem] = {}
        for name, group in self._programs.items():
            right = [program for program in group if program.kind is Kind.RIGHT]
            accepted = [
                program for program in right if (v := own[name].get(program.number)) and v.accepted
            ]
            wanted = any(_is_open(program, own) for program in group)
            if accepted and wanted and choices.inputs:
                generated = probe(group[0].problem, count=choices.inputs, seed=choices.seed)
                if generated is not None:
                    chosen[name] = accepted[:ORIGINALS]
                    probes[name] = with_time_limit(generated, LEAST_SECONDS)
        items = [
            on_inputs(program, probes[name]) for name, group in chosen.items() for program in group
        ]
        outputs, slowest = self._outputs(items)
        problems: dict[str, Problem] = {}
        for name, group in chosen.items():
            problem = group[0].problem
            tests = problem.tests
            checked = isinstance(tests, StdioTests) and tests.has_checker and not tests.fn_name
            printed = [outputs.get((name, program.number), {}) for program in group]
            if agreed := agreed_outputs(printed, one_answer=not checked):
                problems[name] = with_time_limit(with_outputs(problem, agreed), 10 * slowest[name])
        return problems, {name: len(chosen[name]) for name in problems}

    def _outputs(
        self, items: Sequence[ReferenceSolution]
    ) -> tuple[Mapping[tuple[str, int], Mapping[str, str]], Mapping[str, float]]:
        """What programs print by input, without those on which they fail or print too much.

        Beside it, the CPU seconds of each problem's slowest case.
        """
        printed: defaultdict[tuple[str, int], dict[str, str]] = defaultdict(dict)
        slowest: defaultdict[str, float] = defaultdict(float)
        ended = (FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER)
        inputs = {item.problem.problem_id: _inputs(item.problem) for item in items}
        for run in self._judge("inputs", *_INPUTS).runs(items):
            for case in run.cases():
                if case.status in ended and case.actual and _LEFT_OUT not in case.actual:
                    text, name = inputs[case.problem_id][case.case_index], case.problem_id
                    printed[name, case.sample_index][text] = case.actual
                    slowest[name] = max(slowest[name], case.cpu_time or 0.0)
        return printed, slowest

    def _verdicts(
        self, step: str, items: Sequence[ReferenceSolution], *overrides: str
    ) -> defaultdict[str, dict[int, Verdict]]:
        verdicts: defaultdict[str, dict[int, Verdict]] = defaultdict(dict)
        for run in self._judge(step, *overrides).runs(items):
            for verdict in run.verdicts():
                verdicts[verdict.problem_id][verdict.sample_index] = verdict
        return verdicts

    def _judge(self, step: str, *overrides: str) -> SolutionJudge:
        chosen = [*self._choices.overrides, *overrides]
        return SolutionJudge(self._folder / step, chosen, name=step, quiet=True)


def _inputs(problem: Problem) -> list[str]:
    tests = problem.tests
    return tests.inputs if isinstance(tests, StdioTests) else []


def _is_open(program: Program, own: Mapping[str, Mapping[int, Verdict]]) -> bool:
    """Whether the problem's own tests leave open if a program is right.

    They accept a wrong one or reject a right one; their verdict on other programs is believed.
    """
    verdict = own[program.problem.problem_id].get(program.number)
    if verdict is None or not verdict.judged:
        return False
    if program.kind is Kind.ANSWER:
        return True
    return verdict.accepted is not (program.kind is Kind.RIGHT)


# The certificate


def _certificate(
    choices: _Choices, dataset: str, problems: Sequence[Problem], evidence: Mapping[str, Evidence]
) -> Certificate:
    certified = [
        certify_problem(evidence.get(problem.problem_id) or Evidence(problem, (), {}))
        for problem in problems
    ]
    digest = hashlib.sha256()
    for judged in evidence.values():
        for program in judged.programs:
            parts = (*program.key, program.kind, program.solution.language, program.solution.code)
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


def _print_certificate(console: Console, certificate: Certificate) -> None:
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
        console.print(table)
    if len(weak) > _SHOWN:
        say(console, f"… and {len(weak) - _SHOWN} more with wrong verdicts")
    for problem in certificate.problems:
        for bad in problem.bad_labels:
            line = f"bad label, left out: {problem.problem_id}, {bad.source}: {bad.reason}"
            say(console, line, "yellow")
    unknown = [problem.problem_id for problem in certificate.problems if problem.trust is None]
    if unknown:
        names = ", ".join(unknown[:_SHOWN]) + (", …" if len(unknown) > _SHOWN else "")
        line = f"unknown, for want of right or of wrong programs: {len(unknown)} ({names})"
        say(console, line, "yellow")
    _print_rate(console, "wrong programs rejected", certificate.true_negative)
    _print_rate(console, "right programs accepted", certificate.true_positive)
    if rates_of(certificate.problems):
        rejected = sum(problem.wrong_rejected for problem in certificate.problems)
        mutants = sum(problem.unknown for problem in certificate.problems)
        say(console, f"{rejected} wrong programs rejected, {mutants} mutants unknown")


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


def _print_rate(console: Console, label: str, rate: Rate | None) -> None:
    if rate is None:
        say(console, f"{label}: unknown")
        return
    interval = "{:.1%} … {:.1%}".format(*rate.ci95) if rate.ci95 else "no interval"
    say(console, f"{label}: {rate.rate:.1%} ({interval}), mean of {rate.n} problems")
