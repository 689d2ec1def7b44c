"""Commands on a finished run: `plumb show`, `report` and `export`."""

import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from services.cli.console import plain_table, printable, say, shown, stdout_console
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
        str | None,
        typer.Option("--sample", help="Print this sample: DATASET/PROBLEM/INDEX, or PROBLEM."),
    ] = None,
    cases: Annotated[
        ShownCases | None,
        typer.Option("--cases", help="With --sample: the first failing case (default), or all."),
    ] = None,
    status: Annotated[
        FinalStatus | None, typer.Option("--status", help="List the samples with this status.")
    ] = None,
) -> None:
    """Print a run's results and settings, or a sample."""
    if cases and sample is None:
        raise ConfigError("--cases needs --sample: it is about the cases of a sample")
    if sample is not None and status:
        raise ConfigError("--sample and --status: give one of them")
    console = stdout_console()
    finished = open_run(run)
    if sample is not None:
        _print_sample(console, finished, sample, cases or ShownCases.FIRST)
    elif status:
        _print_samples(console, finished, status)
    else:
        _print_run(console, finished)
    for torn in finished.skipped:
        say(console, torn, "yellow")


def _print_run(console: Console, finished: FinishedRun) -> None:
    print_summary(console, finished)
    table = plain_table(["", ""], header=False)
    for name, value in _facts(finished.record).items():
        table.add_row(name, shown(str(value)))
    console.print(table)
    for dataset in finished.record.datasets:
        sha256 = dataset.sha256 if not console.is_terminal else f"{dataset.sha256[:16]}…"
        line = f"{dataset.dataset}: {dataset.problems} problems, SHA-256 {sha256}"
        say(console, line)
    if finished.record.distrust:
        text = "untrusted: fix the sandbox and judge the completions again with plumb rejudge"
        say(console, text, "yellow")
    if not finished.record.complete:
        text = "incomplete: repeat the command to judge the rest"
        say(console, text, "yellow")


def report(
    run: RunFolder,
    out: Annotated[
        str | None,
        typer.Option("--out", help="File to write; by default report.html in the run's folder."),
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
    kind: Annotated[ExportFormat, typer.Option("--format", help="Format of the files.")],
    output: Annotated[str, typer.Option("--output", help="Folder for the files.")],
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


def _print_sample(console: Console, run: FinishedRun, name: str, cases: ShownCases) -> None:
    """Print facts, messages, code and failing cases of a sample."""
    verdict = _find_sample(run, name)
    sample, problem = verdict.sample, (verdict.dataset, verdict.problem_id)
    generation = next((record for record in run.generations() if record.sample == sample), None)
    outlines = read_outlines(run.folder)
    outline = next((o for o in outlines if (o.dataset, o.problem_id) == problem), None)
    style = _STYLES.get(verdict.final_status, "red")
    status = Text(f" {verdict.final_status} ", f"{style} reverse")
    _print_heading(console, Text.assemble(printable(sample.key), "  ", status))
    table = plain_table(["", ""], header=False)
    for label, value in _facts_of_sample(verdict, generation, outline):
        table.add_row(label, shown(value))
    console.print(table)
    if outline:
        if not outline.messages:
            _print_heading(console, "prompt, without the template, which the run did not record")
            _print_text(console, outline.prompt)
        for message in outline.messages or ():
            _print_heading(console, f"sent as {printable(message.role)}")
            _print_text(console, message.content)
    language = run.record.config.judge.for_dataset(verdict.dataset).language
    completion = generation.completion if generation else ""
    if verdict.code is None:
        _print_heading(console, "completion" if completion else "no completion")
        _print_text(console, completion)
    else:
        code = verdict.code.read(completion)
        around = len(completion) - len(code)
        note = f", without {around} characters of the completion" if around > 0 else ""
        _print_heading(console, f"judged code{note}")
        _print_code(console, code, language)
    _print_cases(console, run, verdict, cases, language)


def _print_samples(console: Console, run: FinishedRun, status: FinalStatus) -> None:
    """Print the ids of the samples with a status, and the reasons."""
    table = plain_table(["sample", "cases passed", "reason"])
    for verdict in run.verdicts():
        if verdict.final_status is status:
            case = verdict.first_failed_case
            errors = ((case and case.stderr) or "").strip().splitlines()
            reason = verdict.detail or (errors[-1] if errors else "")
            table.add_row(*map(shown, (verdict.sample.key, _passed(verdict), reason)))
    if table.row_count:
        console.print(table)
    else:
        say(console, f"no sample is {status}")


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


def _print_cases(
    console: Console, run: FinishedRun, verdict: Verdict, cases: ShownCases, language: str
) -> None:
    """Print the first failing case, or all that were recorded."""
    first = verdict.first_failed_case
    chosen: list[FailedCase | CaseRecord] = [] if first is None else [first]
    if cases is ShownCases.ALL:
        recorded = [case for case in run.cases() if case.sample == verdict.sample and failed(case)]
        chosen = [*recorded] or chosen
    for case in chosen:
        number = f"case {case.case_index + 1} of {verdict.cases_total}"
        _print_heading(console, f"{number} (case_index {case.case_index}): {case.status}")
        _print_case(console, case, language)
    more = verdict.cases_total - verdict.cases_passed - verdict.cases_not_run - len(chosen)
    if not chosen or more <= 0:
        return
    text = f"{more} more cases failed"
    if cases is ShownCases.FIRST and run.folder.exists(artifacts.CASES):
        text += "; --cases all prints every recorded case"
    elif len(chosen) == 1:
        text += "; a run with output.cases=failed records them"
    console.print()
    console.print(Text(text))


def _print_case(console: Console, case: FailedCase | CaseRecord, language: str) -> None:
    if case.input is not None:
        _print_label(console, "input")
        _print_text(console, case.input)
        _print_label(console, "expected (-) and actual output (+)")
        for line in _diff(case.expected or "", case.actual or ""):
            console.print(line)
        if not case.actual:
            _print_label(console, "(no output)")
    else:  # what function tests expect is a program
        _print_label(console, "test")
        _print_code(console, case.expected or "", language)
        _print_labelled(console, "output", case.actual)
    _print_labelled(console, "standard error", case.stderr)
    if isinstance(case, CaseRecord):
        _print_labelled(console, "compiler", case.compile_stderr)


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


def _print_code(console: Console, code: str, language: str) -> None:
    """Print code with colours and line numbers, or in a file as it is."""
    text = _visible(code)
    if console.is_terminal and len(text) <= _MOST_COLOURED:
        # Imported here because Pygments takes long to import.
        from rich.syntax import Syntax

        highlighted = Syntax(text, language, theme="ansi_dark", line_numbers=True, word_wrap=True,
                             background_color="default")  # fmt: skip
        # The runner's image has Python's lexer only.
        with suppress(ModuleNotFoundError):
            console.print(highlighted)
            return
    _print_text(console, text)


def _print_heading(console: Console, text: Text | str) -> None:
    console.print()
    console.print(Text.assemble(text, style="bold"))


def _print_label(console: Console, text: str) -> None:
    console.print(Text(text, style="italic"))


def _print_labelled(console: Console, label: str, text: str | None) -> None:
    """Print a text, unless it is empty, under its label."""
    if text:
        _print_label(console, label)
        _print_text(console, text)


def _print_text(console: Console, text: str) -> None:
    console.print(Text(_visible(text.rstrip("\n"))))


def _visible(text: str) -> str:
    """Lines of a text of others: tabs as blanks, any other control character replaced."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))
