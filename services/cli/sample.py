"""`plumb show RUN --sample` and `--status`: one sample with its texts, and lists of samples."""

import difflib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum

from rich.console import Console
from rich.text import Text

from services.cli.console import plain_table, printable, say, shown
from shared import artifacts
from shared.case_records import failed
from shared.errors import ConfigError
from shared.finished_run import FinishedRun
from shared.outlines import ProblemOutline, read_outlines
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


def find_sample(run: FinishedRun, name: str) -> Verdict:
    """Find a sample by its id, ``DATASET/PROBLEM/INDEX``, or by a part that only it has.

    Data set and index may be missing; without an index it is the problem's first sample.

    Raises:
        ConfigError: No sample, or samples of several problems, have the name.
        OutputError: The run's verdicts cannot be read.
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
    if not exact:
        near = (
            difflib.get_close_matches(name.rpartition("/")[2], samples, 1, 0) or list(samples)[:1]
        )
        like = f", such as {samples[near[0]].key}" if near else ""
        raise ConfigError(
            f"{run.folder.shown} has no sample {name!r}; name it DATASET/PROBLEM/INDEX{like}"
        )
    return min(exact, key=lambda verdict: verdict.sample.sample_index)


def _names(sample: SampleId) -> set[str]:
    dataset, problem, index = sample.dataset, sample.problem_id, sample.sample_index
    whole = f"{dataset}/{problem}"
    return {sample.key, whole, f"{whole}/{index}", problem, f"{problem}/{index}"}


def print_sample(console: Console, run: FinishedRun, name: str, cases: ShownCases) -> None:
    """Print facts, messages, code and failing cases of a sample.

    Raises:
        ConfigError: The name is not that of one sample.
        OutputError: The run's files cannot be read.
    """
    verdict = find_sample(run, name)
    generation = next(
        (record for record in run.generations() if record.sample == verdict.sample), None
    )
    problem = (verdict.dataset, verdict.problem_id)
    outlines = read_outlines(run.folder)
    outline = next(
        (record for record in outlines if (record.dataset, record.problem_id) == problem), None
    )
    status = Text(
        f" {verdict.final_status} ", _STYLES.get(verdict.final_status, "red") + " reverse"
    )
    _heading(console, Text.assemble(printable(verdict.sample.key), "  ", status))
    table = plain_table(["", ""], header=False)
    for label, value in _facts(verdict, generation, outline):
        table.add_row(label, shown(value))
    console.print(table)
    _print_messages(console, outline)
    language = run.record.config.judge.for_dataset(verdict.dataset).language
    _print_answer(console, verdict, generation, language)
    _print_cases(console, run, verdict, cases, language)


def print_samples(console: Console, run: FinishedRun, status: FinalStatus) -> None:
    """Print the ids of the samples with a status, and what is known of the reason.

    Raises:
        OutputError: The run's verdicts cannot be read.
    """
    table = plain_table(["sample", "cases passed", "reason"])
    for verdict in run.verdicts():
        if verdict.final_status is status:
            cells = (verdict.sample.key, _passed(verdict), _reason(verdict))
            table.add_row(*map(shown, cells))
    if table.row_count:
        console.print(table)
    else:
        say(console, f"no sample is {status}")


def _facts(
    verdict: Verdict, generation: Generation | None, outline: ProblemOutline | None
) -> Iterator[tuple[str, str]]:
    """What is known of the sample: a label and a text each."""
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
        said = (outline.difficulty, tests, *outline.tags)
        yield "problem", ", ".join(fact for fact in said if fact)
        if outline.quality not in ("", "ok"):
            yield "audit", outline.quality


def _passed(verdict: Verdict) -> str:
    total = f"{verdict.cases_passed} of {verdict.cases_total}"
    return f"{total}{not_run_note(verdict.cases_not_run)}"


def _reason(verdict: Verdict) -> str:
    """The detail, or else the last line that the first failing case wrote to standard error."""
    case = verdict.first_failed_case
    errors = ((case and case.stderr) or "").strip().splitlines()
    return verdict.detail or (errors[-1] if errors else "")


def _print_messages(console: Console, outline: ProblemOutline | None) -> None:
    if outline is None:
        return
    if not outline.messages:
        _heading(console, Text("prompt, without the template, which the run did not record"))
        _print_text(console, outline.prompt)
    for message in outline.messages or ():
        _heading(console, Text(f"sent as {printable(message.role)}"))
        _print_text(console, message.content)


def _print_answer(
    console: Console, verdict: Verdict, generation: Generation | None, language: str
) -> None:
    """Print the judged code; where none was, the completion."""
    completion = generation.completion if generation else ""
    if verdict.code is None:
        _heading(console, Text("completion" if completion else "no completion"))
        _print_text(console, completion)
        return
    code = verdict.code.read(completion)
    around = len(completion) - len(code)
    note = f", without {around} characters of the completion" if around > 0 else ""
    _heading(console, Text(f"judged code{note}"))
    print_code(console, code, language)


def print_code(console: Console, code: str, language: str) -> None:
    """Print code with colours and line numbers, or in a file as it is."""
    shown = _visible(code)
    if not console.is_terminal or len(shown) > _MOST_COLOURED:
        _print_text(console, shown)
        return
    # Imported here because Pygments takes long to import.
    from rich.syntax import Syntax

    highlighted = Syntax(shown, language, theme="ansi_dark", line_numbers=True, word_wrap=True,
                         background_color="default")  # fmt: skip
    try:
        console.print(highlighted)
    except ModuleNotFoundError:  # the runner's image has Python's lexer only
        _print_text(console, shown)


def _print_cases(
    console: Console, run: FinishedRun, verdict: Verdict, shown: ShownCases, language: str
) -> None:
    """Print the first failing case, or all that were recorded."""
    first = verdict.first_failed_case
    cases: list[FailedCase | CaseRecord] = [] if first is None else [first]
    if shown is ShownCases.ALL:
        recorded = [case for case in run.cases() if case.sample == verdict.sample and failed(case)]
        cases = [*recorded] or cases
    for case in cases:
        _print_case(console, case, verdict.cases_total, language)
    failing = verdict.cases_total - verdict.cases_passed - verdict.cases_not_run
    if not cases or failing <= len(cases):
        return
    more = f"{failing - len(cases)} more cases failed"
    if shown is ShownCases.FIRST and run.folder.exists(artifacts.CASES):
        more += "; --cases all prints those that the run recorded"
    elif len(cases) == 1:
        more += "; a run with output.cases=failed records them"
    console.print()
    console.print(Text(more))


def _print_case(console: Console, case: FailedCase | CaseRecord, total: int, language: str) -> None:
    number = f"case {case.case_index + 1} of {total} (case_index {case.case_index})"
    _heading(console, Text(f"{number}: {case.status}"))
    if case.input is not None:
        _label(console, "input")
        _print_text(console, case.input)
        _label(console, "expected (-) and actual output (+)")
        for line in _diff(case.expected or "", case.actual or ""):
            console.print(line)
        if not case.actual:
            _label(console, "(no output)")
    else:  # what function tests expect is a program
        _label(console, "test")
        print_code(console, case.expected or "", language)
        if case.actual:
            _label(console, "output")
            _print_text(console, case.actual)
    compiled = case.compile_stderr if isinstance(case, CaseRecord) else None
    for label, text in (("standard error", case.stderr), ("compiler", compiled)):
        if text:
            _label(console, label)
            _print_text(console, text)


def _diff(expected: str, actual: str) -> Iterator[Text]:
    """The lines of both outputs; of those of only one, blanks at the end are visible."""
    ours, theirs = expected.splitlines(), actual.splitlines()
    for kind, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from (Text(f"  {_visible(line)}") for line in ours[a:b])
            continue
        yield from _marked("-", ours[a:b], "red")
        yield from _marked("+", theirs[c:d], "green")


def _marked(sign: str, lines: Sequence[str], style: str) -> Iterator[Text]:
    for line in lines:
        bare = line.rstrip(" ")
        yield Text(f"{sign} {_visible(bare)}{'·' * (len(line) - len(bare))}", style)


def _heading(console: Console, text: Text) -> None:
    console.print()
    text.stylize("bold")
    console.print(text)


def _label(console: Console, text: str) -> None:
    console.print(Text(text, style="italic"))


def _print_text(console: Console, text: str) -> None:
    console.print(Text(_visible(text.rstrip("\n"))))


def _visible(text: str) -> str:
    """Lines of a text of others: tabs as blanks, any other control character replaced."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))
