"""Agreement of two judging methods over the same completions, sample by sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.schemas import SampleId, Verdict
from shared.statuses import CaseCode, FinalStatus


@dataclass(frozen=True, slots=True)
class MethodVerdict:
    """One method's verdict on a sample."""

    final_status: FinalStatus
    accepted: bool
    cases_passed: int
    cases_total: int
    cases_not_run: int
    detail: str | None


@dataclass(frozen=True, slots=True)
class CaseDisagreement:
    """A test case with different result codes; None if a method has no such case."""

    case: int
    first: int | None
    second: int | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A sample that the methods judge differently."""

    dataset: str
    problem_id: str
    sample_index: int
    first: MethodVerdict
    second: MethodVerdict
    cases: list[CaseDisagreement]

    @property
    def on_acceptance(self) -> bool:
        return self.first.accepted != self.second.accepted


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """All disagreements of two methods, in the order of the samples."""

    methods: tuple[str, str]
    samples: int
    disagreements: list[Disagreement]

    @property
    def agreeing(self) -> int:
        return self.samples - len(self.disagreements)


def compare_methods(
    methods: tuple[str, str], first: Sequence[Verdict], second: Sequence[Verdict]
) -> MethodComparison:
    """Compare verdicts: they agree if the status and the codes of all cases are equal.

    Cases that one method did not run (`judge.max_timeouts`) are not compared. They may decide
    between two statuses of failure, so for such samples it is acceptance that has to be equal.
    """
    ours = {verdict.sample: verdict for verdict in first}
    theirs = {verdict.sample: verdict for verdict in second}
    samples = sorted(ours.keys() & theirs.keys())
    found = (_disagreement(sample, ours[sample], theirs[sample]) for sample in samples)
    return MethodComparison(methods, len(samples), [one for one in found if one is not None])


def _disagreement(sample: SampleId, first: Verdict, second: Verdict) -> Disagreement | None:
    cases = list(_differing_cases(first.case_codes, second.case_codes))
    if not cases and _same_status(first, second):
        return None
    return Disagreement(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        first=_method_verdict(first),
        second=_method_verdict(second),
        cases=cases,
    )


def _same_status(first: Verdict, second: Verdict) -> bool:
    if first.cases_not_run or second.cases_not_run:
        return first.accepted == second.accepted and first.judged == second.judged
    return first.final_status is second.final_status


def _differing_cases(first: Sequence[int], second: Sequence[int]) -> Iterator[CaseDisagreement]:
    for case in range(max(len(first), len(second))):
        one = first[case] if case < len(first) else None
        other = second[case] if case < len(second) else None
        if one != other and CaseCode.NOT_RUN not in (one, other):
            yield CaseDisagreement(case, one, other)


def _method_verdict(verdict: Verdict) -> MethodVerdict:
    return MethodVerdict(
        final_status=verdict.final_status,
        accepted=verdict.accepted,
        cases_passed=verdict.cases_passed,
        cases_total=verdict.cases_total,
        cases_not_run=verdict.cases_not_run,
        detail=verdict.detail,
    )
