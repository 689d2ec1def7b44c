"""Certificate of a data set's tests: how often they reject wrong programs and accept right ones.

``plumb data certify`` writes it beside the parquet file, as ``<file>.certificate.json``. A run
records the figures of the problems that it asks, and its scores are corrected by them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Self

from pydantic import Field, ValidationError, computed_field

from shared.analysis.statistics import LEAST_POWER, MeanRate, SuiteRates, wilson_interval
from shared.config import JudgeConfig
from shared.errors import data_error, reading
from shared.reference import problem_digest
from shared.schemas import Part, Problem, describe

VERSION: Final = 1
ENDING = ".certificate.json"
# Problems with wrong programs that are no mutants, from which on these alone count for a set.
_ENOUGH = 30


class Rate(Part):
    """A share of ``n`` programs, or a mean over ``n`` problems, with its 95 % interval."""

    rate: float
    n: int
    ci95: list[float] | None = None

    @classmethod
    def of(cls, part: int, whole: int) -> Self | None:
        """The share with Wilson's interval; None without any program."""
        if not whole:
            return None
        share = part / whole
        return cls(rate=share, n=whole, ci95=wilson_interval(share, whole))


class Survivor(Part):
    """A wrong program that the tests accept.

    For a mutant: ``difference`` to its original in lines, and a generated input that shows it.
    """

    source: str
    change: str = ""
    difference: str = ""
    input: str | None = None
    expected: str | None = None
    actual: str | None = None


class BadLabel(Part):
    """A program that was labelled right and is not."""

    source: str
    reason: str


class ProblemCertificate(Part):
    """Labelled programs of one problem, counted by the verdict of its tests.

    ``digest`` is :func:`~shared.reference.problem_digest` of the certified content. ``right_`` and
    ``wrong_`` count programs by label; a right program is ``rejected`` although it does on
    generated inputs what the accepted ones do. ``submitted_`` count the wrong programs that are no
    mutants. ``unknown`` counts mutants that no test and no generated input tells apart from their
    original, and programs without a label that are not shown to be wrong. ``originals`` accepted
    programs agreed on ``inputs`` generated inputs. ``survivors`` are the first wrong programs that
    the tests accept. ``bad_labels`` are programs labelled right that fail; no count has them.
    """

    problem_id: str
    digest: str
    right_accepted: int = 0
    right_rejected: int = 0
    wrong_rejected: int = 0
    wrong_accepted: int = 0
    submitted_rejected: int = 0
    submitted_accepted: int = 0
    unknown: int = 0
    originals: int = 0
    inputs: int = 0
    survivors: list[Survivor] = Field(default_factory=list)
    bad_labels: list[BadLabel] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def true_negative(self) -> Rate | None:
        """Share of the wrong programs that the tests reject."""
        return Rate.of(self.wrong_rejected, self.wrong_rejected + self.wrong_accepted)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def true_positive(self) -> Rate | None:
        """Share of the right programs that the tests accept."""
        return Rate.of(self.right_accepted, self.right_accepted + self.right_rejected)

    @property
    def trust(self) -> float | None:
        """q0 + q1 - 1 of this problem, at least 0; None if a rate is unknown."""
        negative, positive = self.true_negative, self.true_positive
        if negative is None or positive is None:
            return None
        return max(0.0, round(negative.rate + positive.rate - 1, 12))


class Certificate(Part):
    """The file.

    ``data_sha256`` and ``programs_sha256`` cover the problems and all judged programs. ``rules``,
    ``method`` and ``checker`` are those of the verdicts. The rates are means over problems, with a
    bootstrap over problems.
    """

    version: Literal[1] = VERSION
    dataset: str
    data_sha256: str
    programs_sha256: str
    rules: int
    method: str
    checker: str
    seed: int
    mutants: int
    inputs: int
    versions: Mapping[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    true_negative: Rate | None = None
    true_positive: Rate | None = None
    problems: list[ProblemCertificate]


class CertifiedTests(Part):
    """What a certificate says of the problems of a run: a part of the run's record.

    ``problems`` counts those that it covers; ``rates`` is None if one is unknown. ``why_not`` says
    why no score is corrected by it, and is empty if scores are.
    """

    file: str
    sha256: str
    problems: int
    rates: SuiteRates | None = None
    why_not: str = ""

    @property
    def usable(self) -> SuiteRates | None:
        """The rates by which scores are corrected."""
        return None if self.why_not else self.rates


def certificate_file(data: str) -> str:
    """The certificate's place beside a parquet file."""
    return data.removesuffix(".parquet") + ENDING


def read_certificate(path: str) -> tuple[Certificate, bytes] | None:
    """Read a certificate and its bytes; None if there is none, and beside a file on the web.

    Raises:
        DataError: It cannot be read, or another version of Plumbline wrote it.
    """
    if path.startswith(("http://", "https://")):
        return None  # an address names one file, and a server may answer any other one
    import fsspec  # services that read no data are installed without it

    with reading(path):
        fs, place = fsspec.core.url_to_fs(path)
        if not fs.exists(place):
            return None
        content = fs.cat_file(place)
    try:
        return Certificate.model_validate(json.loads(content)), content
    except ValueError as error:
        cause = describe(error) if isinstance(error, ValidationError) else str(error)
        raise data_error(path, f"not a certificate ({cause}); certify again") from None


def wrong_shares(problems: Sequence[ProblemCertificate]) -> list[float | None]:
    """Share of wrong programs rejected, by problem; None where there are no wrong programs.

    Submitted programs are harder to find than mutants. So mutants count only if fewer than 30
    problems have others.
    """
    submitted = [
        Rate.of(p.submitted_rejected, p.submitted_rejected + p.submitted_accepted) for p in problems
    ]
    enough = sum(rate is not None for rate in submitted) >= _ENOUGH
    return _shares(submitted if enough else [problem.true_negative for problem in problems])


def right_shares(problems: Sequence[ProblemCertificate]) -> list[float | None]:
    """Share of right programs accepted, by problem; None where there are none."""
    return _shares([problem.true_positive for problem in problems])


def _shares(rates: Sequence[Rate | None]) -> list[float | None]:
    return [None if rate is None else rate.rate for rate in rates]


def rates_of(problems: Sequence[ProblemCertificate]) -> SuiteRates | None:
    """Mean rates over problems; None if one of them is unknown for every problem."""
    negative, positive = (
        MeanRate.of([share for share in shares if share is not None])
        for shares in (wrong_shares(problems), right_shares(problems))
    )
    return SuiteRates(negative, positive) if negative and positive else None


def certified_tests(
    files: Iterable[str], problems: Sequence[Problem], judge: JudgeConfig
) -> dict[str, CertifiedTests]:
    """What the certificates beside data files say of problems, by data set.

    Raises:
        DataError: A certificate cannot be read.
    """
    certified: dict[str, CertifiedTests] = {}
    for file in files:
        path = certificate_file(file)
        if (read := read_certificate(path)) is None:
            continue
        certificate, content = read
        name = certificate.dataset
        digests = {p.problem_id: problem_digest(p) for p in problems if p.dataset == name}
        same = [
            problem
            for problem in certificate.problems
            if digests.get(problem.problem_id) == problem.digest
        ]
        rates = rates_of(same)
        certified[name] = CertifiedTests(
            file=path,
            sha256=hashlib.sha256(content).hexdigest(),
            problems=len(same),
            rates=rates,
            why_not=_why_not(certificate, judge.for_dataset(name), rates),
        )
    return certified


def _why_not(certificate: Certificate, judge: JudgeConfig, rates: SuiteRates | None) -> str:
    ours = {"rules": judge.rules, "method": judge.method, "checker": judge.effective_checker}
    for name, own in ours.items():
        if own != (other := getattr(certificate, name)):
            return f"the certificate is for {name} {other}, not {own}"
    if rates is None:
        return "the certificate knows no right or no wrong program of these problems"
    if not rates.usable:
        return f"the rates add up to {1 + rates.power:.2f}, less than {1 + LEAST_POWER:g}"
    return ""
