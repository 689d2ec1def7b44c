"""Commands on a finished run: `plumb show`, `report` and `export`."""

import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from typer import Option

from services.cli.console import display, plain_table, printable, say, shown, stdout_console
from services.cli.display import print_summary
from services.cli.options import RunFolder
from services.exports import ExportFormat, export_samples, load_samples
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.case_records import failed
from shared.errors import ConfigError
from shared.finished_run import FinishedRun, open_run
from shared.outlines import ProblemOutline, read_outlines
from shared.redaction import redact
from shared.run_record import RunRecord
from shared.schemas import CaseRecord, FailedCase, Generation, SampleId, Verdict
from shared.statuses import FinalStatus, JudgeMethod
from shared.text import not_run_note

# Longer code is printed without colours: the patterns of a lexer take long on hostile texts.
_MOST_COLOURED = 100_000
_MOST_LISTED = 5
_STYLES = {FinalStatus.SUCCESS: "green", FinalStatus.API_ERROR: "yellow"}


class ShownCases(StrEnum):
    """The failing cases that are printed."""

    FIRST = "first"
    ALL = "all"


def show(
    run: RunFolder,
    sample: Annotated[
        str | None, Option(help="Print this sample: DATASET/PROBLEM/INDEX, or PROBLEM.")
    ] = None,
    cases: Annotated[
        ShownCases | None, Option(help="With --sample: the first failing case (default), or all.")
    ] = None,
    status: Annotated[FinalStatus | None, Option(help="List the samples with this status.")] = None,
) -> None:
    """Print a run's results and settings, or a sample."""
    if cases and sample is None:
        raise ConfigError("--cases needs --sample: it is about the cases of a sample")
    if sample is not None and status:
        raise ConfigError("--sample and --status: give one of them")
    finished = open_run(run)
    if sample is not None:
        verdict = _find_sample(finished, sample)
        display(*_sample(finished, verdict, cases or ShownCases.FIRST))
    elif status:
        _print_samples(finished, status)
    else:
        _print_run(finished)
    for torn in finished.skipped:
        say(torn, "yellow")


def _print_run(finished: FinishedRun) -> None:
    print_summary(finished)
    display(_facts_table(_facts(finished.record).items()))
    for dataset in finished.record.datasets:
        sha256 = dataset.sha256 if not stdout_console().is_terminal else f"{dataset.sha256[:16]}…"
        say(f"{dataset.dataset}: {dataset.problems} problems, SHA-256 {sha256}")
    if finished.record.distrust:
        remedy = "fix the sandbox and judge the completions again with plumb rejudge"
        say(f"untrusted: {remedy}", "yellow")
    if not finished.record.complete:
        say("incomplete: repeat the command to judge the rest", "yellow")


def report(
    run: RunFolder,
    out: Annotated[
        str | None, Option(help="File to write; by default report.html in the run's folder.")
    ] = None,
) -> None:
    """Write a run's page as one self-contained file, from its folder alone."""
    # Imported here because the runner's image has no services/aggregator.
    from services.aggregator.report import write_report

    finished = open_run(run)
    folder, name = finished.folder, artifacts.REPORT
    if out is not None:
        folder, name = OutputFolder.of_file(out, artifacts.REPORT)
    _print_files(folder, [name], notes=write_report(finished, folder, name))


def export(
    run: RunFolder,
    kind: Annotated[ExportFormat, Option("--format", help="Format of the files.")],
    output: Annotated[str, Option(help="Folder for the files.")],
) -> None:
    """Write a run's samples in another project's format."""
    samples, folder = load_samples(open_run(run)), OutputFolder(output)
    names = export_samples(kind, samples, folder)
    _print_files(folder, names, samples.notes)


def _print_files(folder: OutputFolder, names: Sequence[str], notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {redact(note)}", file=sys.stderr)
    for name in names:
        print(f"{folder.shown.rstrip('/')}/{name}")


def _facts_table(facts: Iterable[tuple[str, object]]) -> Table:
    table = plain_table(["", ""], header=False)
    for label, value in facts:
        table.add_row(label, shown(str(value)))
    return table


def _facts(run: RunRecord) -> dict[str, object]:
    rollout = run.config.actor_rollout_ref.rollout
    environment = f", {run.environments[0].describe()}" if run.environments else ""
    return {
        "model": run.model,
        "method": run.config.judge.method,
        "judged by": f"rules {run.config.judge.rules}{environment}",
        "temperature, n": f"{rollout.temperature}, {rollout.n}",
        "response length": rollout.response_length,
        "seed": run.seed,
        "commit": run.git_commit,
        "confirmed, flipped": f"{run.timeouts_confirmed}, {run.timeouts_flipped}",
        "infrastructure failures": run.infra_failures or "none",
    }


# A sample


def _find_sample(run: FinishedRun, name: str) -> Verdict:
    """Find a sample by its id, ``DATASET/PROBLEM/INDEX``, or by a part that only it has.

    Data set and index may be missing; without an index it is the problem's first sample.

    Raises:
        ConfigError: No sample, or samples of several problems, have the name.
    """
    matches: list[Verdict] = []
    samples: dict[str, SampleId] = {}
    for verdict in run.verdicts():
        samples.setdefault(verdict.problem_id, verdict.sample)
        if name in _names(verdict.sample):
            matches.append(verdict)
    exact = [verdict for verdict in matches if name == verdict.sample.key] or matches
    problems = {(verdict.dataset, verdict.problem_id) for verdict in exact}
    if len(problems) > 1:
        keys = ", ".join(verdict.sample.key for verdict in exact[:_MOST_LISTED])
        raise ConfigError(f"{len(problems)} problems have the name {name!r}: {keys}; name one")
    if exact:
        return min(exact, key=lambda verdict: verdict.sample.sample_index)
    near = difflib.get_close_matches(name.rpartition("/")[2], samples, 1, 0) or [*samples][:1]
    like = f", such as {samples[near[0]].key}" if near else ""
    raise ConfigError(
        f"{run.folder.shown} has no sample {name!r}; name it DATASET/PROBLEM/INDEX{like}"
    )


def _names(sample: SampleId) -> set[str]:
    problem, index = sample.problem_id, sample.sample_index
    whole = f"{sample.dataset}/{problem}"
    return {sample.key, whole, f"{whole}/{index}", problem, f"{problem}/{index}"}


def _sample(run: FinishedRun, verdict: Verdict, cases: ShownCases) -> Iterator[RenderableType]:
    """Yield facts, messages, code and failing cases of a sample."""
    sample, problem = verdict.sample, (verdict.dataset, verdict.problem_id)
    generation = next((record for record in run.generations() if record.sample == sample), None)
    outlines = read_outlines(run.folder)
    outline = next((o for o in outlines if (o.dataset, o.problem_id) == problem), None)
    style = _STYLES.get(verdict.final_status, "red")
    status = Text(f" {verdict.final_status} ", f"{style} reverse")
    yield from _heading(Text.assemble(printable(sample.key), "  ", status))
    yield _facts_table(_facts_of_sample(verdict, generation, outline))
    if outline:
        if not outline.messages:
            yield from _heading("prompt, without the template, which the run did not record")
            yield _text(outline.prompt)
        for message in outline.messages or ():
            yield from (*_heading(f"sent as {printable(message.role)}"), _text(message.content))
    language = run.record.config.judge.for_dataset(verdict.dataset).language
    completion = generation.completion if generation else ""
    if verdict.code is None:
        yield from _heading("completion" if completion else "no completion")
        yield _text(completion)
    else:
        code = verdict.code.read(completion)
        around = len(completion) - len(code)
        note = f", without {around} characters of the completion" if around > 0 else ""
        yield from (*_heading(f"judged code{note}"), _code(code, language))
    yield from _cases(run, verdict, cases, language)


def _print_samples(run: FinishedRun, status: FinalStatus) -> None:
    """Print the ids of the samples with a status, and the reasons."""
    table = plain_table(["sample", "cases passed", "reason"])
    for verdict in run.verdicts():
        if verdict.final_status is status:
            case = verdict.first_failed_case
            errors = ((case and case.stderr) or "").strip().splitlines()
            reason = verdict.detail or (errors[-1] if errors else "")
            table.add_row(*map(shown, (verdict.sample.key, _passed(verdict), reason)))
    if table.row_count:
        display(table)
    else:
        say(f"no sample is {status}")


def _facts_of_sample(
    verdict: Verdict, generation: Generation | None, outline: ProblemOutline | None
) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each fact about the sample."""
    yield "cases passed", _passed(verdict)
    if verdict.detail:
        yield "detail", verdict.detail
    if verdict.method is not JudgeMethod.NONE:
        yield "judged by", f"{verdict.method}, {verdict.checker}"
        seconds = [f"{verdict.total_judge_time:.3f} s"]
        seconds += [] if verdict.cpu_time is None else [f"{verdict.cpu_time:.3f} s of CPU"]
        seconds += [] if not verdict.peak_memory else [f"{verdict.peak_memory / 2**20:.0f} MiB"]
        yield "judging", ", ".join(seconds)
    if verdict.infra_failures:
        yield "failures of ours", "; ".join(map(str, verdict.infra_failures))
    if verdict.code:
        yield "code found", verdict.code.reason.replace("_", " ")
    if generation:
        counts = (("in", generation.prompt_tokens), ("out", generation.output_tokens))
        tokens = [f"{count} {way}" for way, count in counts if count is not None]
        tokens += [] if generation.gen_time is None else [f"{generation.gen_time:.2f} s"]
        tokens += [f"ended by {generation.finish_reason}"] if generation.finish_reason else []
        if generation.completion_from:
            tokens.append("judged by its reasoning, as nothing else came")
        elif generation.reasoning:
            tokens.append(f"{len(generation.reasoning)} characters of reasoning apart")
        yield "generation", generation.error or ", ".join(tokens)
    if outline:
        tests = None if outline.num_tests is None else f"{outline.num_tests} tests"
        yield "problem", ", ".join(filter(None, (outline.difficulty, tests, *outline.tags)))
        if outline.quality not in ("", "ok"):
            yield "audit", outline.quality


def _passed(verdict: Verdict) -> str:
    total = f"{verdict.cases_passed} of {verdict.cases_total}"
    return f"{total}{not_run_note(verdict.cases_not_run)}"


def _cases(
    run: FinishedRun, verdict: Verdict, cases: ShownCases, language: str
) -> Iterator[RenderableType]:
    """Yield the first failing case, or all that were recorded."""
    first = verdict.first_failed_case
    chosen: list[FailedCase | CaseRecord] = [] if first is None else [first]
    if cases is ShownCases.ALL:
        recorded = [case for case in run.cases() if case.sample == verdict.sample and failed(case)]
        chosen = [*recorded] or chosen
    for case in chosen:
        number = f"case {case.case_index + 1} of {verdict.cases_total}"
        yield from _heading(f"{number} (case_index {case.case_index}): {case.status}")
        yield from _case(case, language)
    more = verdict.cases_total - verdict.cases_passed - verdict.cases_not_run - len(chosen)
    if not chosen or more <= 0:
        return
    text = f"{more} more cases failed"
    if cases is ShownCases.FIRST and run.folder.exists(artifacts.CASES):
        text += "; --cases all prints every recorded case"
    elif len(chosen) == 1:
        text += "; a run with output.cases=failed records them"
    yield from ("", Text(text))


def _case(case: FailedCase | CaseRecord, language: str) -> Iterator[RenderableType]:
    if case.input is not None:
        yield from (_label("input"), _text(case.input))
        yield _label("expected (-) and actual output (+)")
        yield from _diff(case.expected or "", case.actual or "")
        if not case.actual:
            yield _label("(no output)")
    else:  # what function tests expect is a program
        yield from (_label("test"), _code(case.expected or "", language))
    labelled = {
        "output": case.actual if case.input is None else None,
        "standard error": case.stderr,
        "compiler": case.compile_stderr if isinstance(case, CaseRecord) else None,
    }
    for label, text in labelled.items():
        if text:
            yield from (_label(label), _text(text))


def _diff(expected: str, actual: str) -> Iterator[Text]:
    """The lines of both outputs; of those of only one, blanks at the end are visible."""
    lines = expected.splitlines(), actual.splitlines()
    matcher = difflib.SequenceMatcher(None, *lines, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from (Text(f"  {_visible(line)}") for line in lines[0][a:b])
            continue
        for sign, style, changed in (("-", "red", lines[0][a:b]), ("+", "green", lines[1][c:d])):
            for line in changed:
                bare = line.rstrip(" ")
                yield Text(f"{sign} {_visible(bare)}{'·' * (len(line) - len(bare))}", style)


def _code(code: str, language: str) -> RenderableType:
    """Code with colours and line numbers, or for a file as it is."""
    text = _visible(code)
    if not stdout_console().is_terminal or len(text) > _MOST_COLOURED:
        return _text(code)
    # Imported here because Pygments takes long to import.
    from rich.syntax import Syntax

    return Syntax(text, language, theme="ansi_dark", line_numbers=True, word_wrap=True,
                  background_color="default")  # fmt: skip


def _heading(text: Text | str) -> tuple[RenderableType, RenderableType]:
    return "", Text.assemble(text, style="bold")


def _label(text: str) -> Text:
    return Text(text, style="italic")


def _text(text: str) -> Text:
    return Text(_visible(text.rstrip("\n")))


def _visible(text: str) -> str:
    """Lines of a text of others: tabs as blanks, any other control character replaced."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))
