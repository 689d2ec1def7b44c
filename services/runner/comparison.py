"""Two runs over the same completions, judged by two methods: where do they disagree?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shared.artifacts import OutputFolder
from shared.config import Config
from shared.finished_run import open_run
from shared.schemas import SampleId, Verdict

COMPARISON = "comparison.json"


@dataclass(frozen=True, slots=True)
class Side:
    """What one method said about a sample."""

    final_status: str
    accepted: bool
    cases_passed: int
    cases_total: int
    detail: str | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A sample that two methods judge differently; ``cases`` are index and the two codes."""

    dataset: str
    problem_id: str
    sample_index: int
    first: Side
    second: Side
    cases: list[tuple[int, int | None, int | None]]

    @property
    def on_acceptance(self) -> bool:
        return self.first.accepted != self.second.accepted


@dataclass(frozen=True, slots=True)
class Comparison:
    """All disagreements of two methods, in the order of the samples."""

    methods: tuple[str, str]
    samples: int
    disagreements: list[Disagreement]
    file: str = ""


def compare_folders(first: Config, second: Config) -> Comparison:
    """Compare two runs, and write ``comparison.json`` into the first one's folder.

    Raises:
        OutputError: The verdicts of one cannot be read, or the file cannot be written.
    """
    methods = (first.judge.method, second.judge.method)
    found = compare(
        methods, *(list(open_run(one.output_dir).verdicts()) for one in (first, second))
    )
    folder = OutputFolder(first.output_dir)
    folder.write_json(
        COMPARISON,
        {
            "methods": methods,
            "samples": found.samples,
            "agreeing": found.samples - len(found.disagreements),
            "disagreements": [
                {
                    **asdict(d),
                    "cases": [dict(zip(("case", *methods), case, strict=True)) for case in d.cases],
                }
                for d in found.disagreements
            ],
        },
    )
    return Comparison(
        found.methods, found.samples, found.disagreements, f"{folder.url}/{COMPARISON}"
    )


def compare(
    methods: tuple[str, str], first: Sequence[Verdict], second: Sequence[Verdict]
) -> Comparison:
    """Two verdicts agree where status and the codes of all cases are the same."""
    ours = {verdict.sample: verdict for verdict in first}
    theirs = {verdict.sample: verdict for verdict in second}
    samples = sorted(ours.keys() & theirs.keys())
    differing = [_disagreement(sample, ours[sample], theirs[sample]) for sample in samples]
    return Comparison(methods, len(samples), [d for d in differing if d is not None])


def _disagreement(sample: SampleId, first: Verdict, second: Verdict) -> Disagreement | None:
    cases = _differing(first.case_codes, second.case_codes)
    if not cases and first.final_status is second.final_status:
        return None
    return Disagreement(
        sample.dataset, sample.problem_id, sample.sample_index, _side(first), _side(second), cases
    )


def _differing(
    first: Sequence[int], second: Sequence[int]
) -> list[tuple[int, int | None, int | None]]:
    def code(codes: Sequence[int], place: int) -> int | None:
        return codes[place] if place < len(codes) else None

    pairs = [(i, code(first, i), code(second, i)) for i in range(max(len(first), len(second)))]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _side(verdict: Verdict) -> Side:
    return Side(
        verdict.final_status.value,
        verdict.accepted,
        verdict.cases_passed,
        verdict.cases_total,
        verdict.detail,
    )
