"""Early stop of a run: a policy against a baseline, decided problem by problem in random order."""

from collections import defaultdict
from collections.abc import Collection

from shared.analysis.compare import compare_runs
from shared.analysis.gate import GateReport, NamedPolicy, Outcome, evaluate, undecidable_early
from shared.analysis.paired import order_key
from shared.analysis.runs import Columns, ComparedRun, ProblemNote
from shared.errors import ConfigError
from shared.ledger import Ledger
from shared.reference import problem_digest
from shared.run_record import RunPlan, RunRecord, StoppedEarly
from shared.schemas import SampleId

_GO = {Outcome.PASS: "go", Outcome.FAIL: "no-go"}


class UntilDecided:
    """Decides after each problem whether a policy is decided against a baseline.

    Verdicts count in a random order of the problems by ``seed``, never in that of their arrival:
    right answers are judged faster than endless ones. So a problem counts when all before it are
    judged.

    Raises:
        ConfigError: The baseline cannot be one, or has other data sets.
    """

    def __init__(
        self, policy: NamedPolicy, baseline: ComparedRun, plan: RunPlan, seed: int
    ) -> None:
        _check_baseline(baseline, plan)
        self._policy = policy
        self._baseline = baseline
        self._plan = plan
        self._samples: defaultdict[tuple[str, str], list[SampleId]] = defaultdict(list)
        for sample in plan.each_sample():
            self._samples[sample.dataset, sample.problem_id].append(sample)
        self._order = sorted(self._samples, key=lambda problem: order_key(seed, *problem))
        self._columns: defaultdict[str, Columns] = defaultdict(Columns)
        self._notes: defaultdict[str, dict[str, ProblemNote]] = defaultdict(dict)
        self._counted = 0

    @property
    def notes(self) -> list[str]:
        """The rules that need all problems."""
        names = [dataset.name for dataset in self._plan.datasets]
        late = ", ".join(undecidable_early(self._policy.policy, names))
        note = f"stops early only for a no-go, because these need all problems: {late}"
        return [note] if late else []

    def in_order(self, samples: Collection[SampleId]) -> list[SampleId]:
        """The samples in the random order of their problems."""
        wanted = set(samples)
        return [s for name in self._order for s in self._samples[name] if s in wanted]

    def decide(
        self, ledger: Ledger, unjudged: Collection[SampleId]
    ) -> tuple[RunPlan, StoppedEarly] | None:
        """Count the problems that are judged meanwhile; blocks.

        Returns the part of the plan on which the policy is decided, and the record of it; None if
        it is not, or if all problems are used.

        Raises:
            ConfigError: The run is not comparable with the baseline, so nothing can be decided.
        """
        before = self._counted
        self._count(ledger, unjudged)
        if self._counted == before or self._counted == len(self._order):
            return None
        part = self._plan.reduced(set(self._order[: self._counted]))
        report = self._evaluate(ledger, part)
        if report is None or report.outcome is Outcome.UNDECIDED:
            return None
        stopped = StoppedEarly(
            outcome=_GO[report.outcome],
            rules=report.deciding_rules(),
            policy=self._policy.name,
            baseline=self._baseline.place,
            problems=self._counted,
            planned=len(self._order),
        )
        return part, stopped

    def _count(self, ledger: Ledger, unjudged: Collection[SampleId]) -> None:
        """Read the verdicts of the next problems in the order, up to one that is not judged."""
        samples: list[SampleId] = []
        firsts: list[SampleId] = []
        for problem in self._order[self._counted :]:
            if any(sample in unjudged for sample in self._samples[problem]):
                break
            samples += self._samples[problem]
            firsts.append(self._samples[problem][0])
        for verdict in ledger.verdicts(samples):
            self._columns[verdict.dataset].add(verdict)
        for stored in ledger.problems(firsts):
            self._notes[stored.dataset][stored.problem_id] = ProblemNote(problem_digest(stored))
        self._counted += len(firsts)

    def _evaluate(self, ledger: Ledger, part: RunPlan) -> GateReport | None:
        meta = ledger.meta()
        if meta is None or not self._columns.keys() >= self._baseline.verdicts.keys():
            return None
        run = ComparedRun(
            label="B",
            name=meta.name,
            place=meta.output,
            record=RunRecord.of(ledger.run, meta, part.datasets),
            verdicts={name: columns.sorted() for name, columns in self._columns.items()},
            problems=dict(self._notes),
            summary={},
        )
        comparison = compare_runs(self._baseline, run)
        if lines := [*comparison.warnings, *comparison.doubts]:
            raise ConfigError(
                f"nothing can be decided against {self._baseline.place} (A): {'; '.join(lines[:5])}"
            )
        return evaluate(self._policy.policy, comparison, sequential=True)


def _check_baseline(baseline: ComparedRun, plan: RunPlan) -> None:
    record, names = baseline.record, [dataset.name for dataset in plan.datasets]
    faults = [f"is {record.state}"] if not record.state.published else []
    faults += [record.stopped.described] if record.stopped else []
    faults += record.distrust[:1]
    if set(names) != set(baseline.verdicts):
        faults.append(f"has the data sets {', '.join(baseline.verdicts)}")
    else:
        changed = [d.name for d in plan.datasets if d.sha256 != baseline.data_sha256(d.name)]
        faults += [f"has other problems of {name}" for name in changed]
    if faults:
        raise ConfigError(
            f"{baseline.place} cannot be the baseline of a run of {', '.join(names)}: "
            f"{'; '.join(faults)}"
        )
