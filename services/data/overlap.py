"""Overlap detection: finds duplicate and similar problems within and between data sets.

Near duplicates: MinHash LSH finds candidates, the exact Jaccard index confirms. Shared n-grams are
counted through one inverted index. An allowlist names pairs that a reviewer accepted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import combinations
from typing import Annotated

import fsspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from datasketch import MinHash, MinHashLSH
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from services.data.records import ProblemText
from services.data.tokens import (
    Hashes,
    ngram_hashes,
    plain_code,
    tokenize_code,
    without_names,
    word_hashes,
    words,
)
from shared.datasets import canonicalize
from shared.errors import DataError, data_error, reading
from shared.schemas import describe

# More pairs mean that the data sets repeat a few texts; such a list is too long to review.
MAX_PAIRS = 200_000

# Similarity (0 to 1) by the two problems' positions, the smaller one first.
Similarities = dict[tuple[int, int], float]


class OverlapKind(StrEnum):
    """Kind of similarity between two problems.

    The similarity is 1 if exact, the Jaccard index if near, otherwise the share of n-grams.
    """

    EXACT = "exact"
    NEAR = "near"
    PROMPT_NGRAMS = "prompt_ngrams"
    SOLUTION_NGRAMS = "solution_ngrams"


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair of problems, ordered by data set, split and id.

    ``findings`` has the similarity by kind, ``excerpts`` a line of each text around what both have
    in common. ``reviewed`` is the reason of a reviewer who accepted the pair; None if it is open.
    """

    a: ProblemText
    b: ProblemText
    findings: Mapping[OverlapKind, float]
    excerpts: tuple[str, str]
    reviewed: str | None = None

    @property
    def datasets(self) -> set[str]:
        return {self.a.dataset, self.b.dataset}

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.a.name, self.b.name))

    def entry(self) -> dict[str, object]:
        """The entry in the list of overlaps."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "findings": {kind: round(share, 4) for kind, share in self.findings.items()},
            "excerpts": self.excerpts,
            "reviewed": self.reviewed,
        }

    def leaks(self, families: Mapping[str, str]) -> bool:
        """Whether the data sets are of different families (its own name if missing)."""
        return len({families.get(dataset, dataset) for dataset in self.datasets}) > 1


def _check_number(pairs: int) -> None:
    """Limit the number of pairs; it explodes if most problems are copies of one another.

    Raises:
        DataError: There are more than ``MAX_PAIRS``.
    """
    if pairs > MAX_PAIRS:
        raise DataError(
            f"more than {MAX_PAIRS:,} pairs of problems are alike; check whether a data set "
            "repeats its prompts, and remove duplicates within each set"
        )


# Detection

# Words per n-gram, and n-grams that a text needs to be compared.
SIZE, _MIN_NGRAMS = 13, 20
# A pair overlaps if this share of the shorter text's n-grams is in the other one. In HumanEval,
# MBPP and 40 problems of CodeContests, different problems share up to 0.30 of their prompts'
# n-grams (0.81 for short prompts) and up to 0.93 of their solutions' n-grams (all of them for
# shorter solutions).
MIN_SHARE, _MIN_WHOLE_SHARE, MIN_SOLUTION_SHARE = 0.4, 0.9, 0.95
# N-grams in more problems than this are common phrases and never count as shared.
_MAX_PROBLEMS = 10
_EXCERPT_CHARACTERS, _COMPARED_WORDS = 160, 1000


def find_overlaps(texts: Sequence[ProblemText]) -> list[Overlap]:
    """Find all pairs of problems that are duplicates or similar.

    The result does not depend on the order of the texts or on the machine.

    Returns:
        One entry per pair, sorted by the names of the problems.

    Raises:
        DataError: There are more than ``MAX_PAIRS``, too many to review.
    """
    problems = sorted(texts, key=_order)
    views = [_views_of(problem.statement) for problem in problems]
    similarities = {
        OverlapKind.EXACT: _exact(problems),
        OverlapKind.NEAR: _near(views),
        OverlapKind.PROMPT_NGRAMS: _prompt_ngrams(views),
        OverlapKind.SOLUTION_NGRAMS: _solution_ngrams(problems),
    }
    pairs: dict[tuple[int, int], dict[OverlapKind, float]] = defaultdict(dict)
    for kind, of_kind in similarities.items():
        for pair, similarity in of_kind.items():
            pairs[pair][kind] = similarity
    return [_overlap(problems[a], problems[b], pairs[a, b]) for a, b in sorted(pairs)]


def _order(text: ProblemText) -> tuple[str, ...]:
    return text.dataset, text.split, text.problem_id, text.prompt_sha256, text.statement


def _exact(problems: Sequence[ProblemText]) -> Similarities:
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.prompt_sha256].append(position)
    _check_number(sum(len(group) * (len(group) - 1) // 2 for group in groups.values()))
    return {pair: 1.0 for group in groups.values() for pair in combinations(group, 2)}


# Views of a prompt, insensitive to renaming, layout and headings

_SHORT_LINE = 20  # characters
_LONGEST_HEADING = 60  # characters
_HEADING_WORDS = 3
_SHORT_WORD = 2  # bytes
_COLONS = (":", "\uff1a")
# Headings begin with a capital or a caseless letter and do not end with punctuation.
_NO_HEADING = re.compile(r"[\d()\[\]{}'\"=]|^[^\w#*]|^[a-z]|[.,;!?]$")


@dataclass(frozen=True, slots=True)
class _Views:
    """The words of a prompt, as hashes; headings are removed from all views.

    ``prose`` omits numbers and words of one or two letters, so changed variables, limits or samples
    do not matter. ``named`` and ``named_prose`` are words and prose with a placeholder for each
    name that the prompt's own code defines; both are empty if the prompt has no code.
    """

    words: Hashes
    prose: Hashes
    named: Hashes
    named_prose: Hashes


def _views_of(prompt: str) -> _Views:
    """Compute all views of a prompt."""
    text = canonicalize(prompt)
    nameless = without_names(text)
    body = _without_headings(text)
    # A text without letters and digits is compared by its other characters.
    all_words = words(body) or words(text) or text.encode("utf-8", "surrogatepass").split()
    named = "" if nameless is None else _without_headings(nameless)
    return _Views(
        words=word_hashes(all_words),
        prose=word_hashes(_prose(body)),
        named=word_hashes(words(named)),
        named_prose=word_hashes(_prose(named)),
    )


def _prose(text: str) -> list[bytes]:
    return [word for word in words(text) if len(word) > _SHORT_WORD and not word.isdigit()]


def _without_headings(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not _is_heading(line.strip()))


def _is_heading(line: str) -> bool:
    """Detect lines such as "Input" and "For example:", which differ in a translated copy."""
    if _NO_HEADING.search(line):
        return False
    if line.endswith(_COLONS):
        return len(line) <= _LONGEST_HEADING
    return len(line) <= _SHORT_LINE and len(line.split()) <= _HEADING_WORDS


# Near duplicates

# Minimum Jaccard index of two sets of shingles, which are runs of so many words. Of copies of
# HumanEval, MBPP and 40 problems of CodeContests with changed names, headings or layout, 96 of 100
# are found; no two different questions of these sets reach the threshold.
THRESHOLD, SHINGLE_WORDS = 0.77, 3
_PERMUTATIONS = 128
# Bands of a sketch and values in each. Texts of Jaccard index s share one of b bands of r values
# with probability 1 - (1 - s^r)^b (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4.2):
# 0.99 at the threshold.
_BANDS = (21, 6)
# Minimum words; with fewer, a single word would decide.
_MIN_PROSE = 7
_LOW_BITS = np.uint64(0xFFFFFFFF)
# Shingle sets of a text for one criterion: all of them must be similar, and the first one
# determines the candidates. Empty if the criterion does not apply to the text.
_ShingleSets = tuple[Hashes, ...]


def _near(texts: Sequence[_Views]) -> Similarities:
    """Find the pairs that are near duplicates by at least one criterion."""
    similarities: Similarities = {}
    for criterion in (_by_prose, _by_named):
        sets = [criterion(text) for text in texts]
        for pair in _candidates(sets):
            similarity = _similarity(sets[pair[0]], sets[pair[1]])
            if similarity >= THRESHOLD:
                similarities[pair] = max(similarity, similarities.get(pair, 0.0))
                _check_number(len(similarities))
    return similarities


def _by_prose(text: _Views) -> _ShingleSets:
    if len(text.prose) < 2 * _MIN_PROSE:
        # Texts with almost no prose are compared by all words, including numbers and signs.
        return _shingles(text.words), _shingles(text.prose)
    return (_shingles(text.prose),)


def _by_named(text: _Views) -> _ShingleSets:
    # Some different questions about the same sample data differ in one word; others, with masked
    # names, only in numbers. So both views must be similar.
    if not len(text.named):
        return ()
    return _shingles(text.named), _shingles(text.named_prose)


def _shingles(words: Hashes) -> Hashes:
    """Hash the set of runs of ``SHINGLE_WORDS`` words, sorted; a shorter text is one run."""
    return np.unique(ngram_hashes(words, max(1, min(SHINGLE_WORDS, len(words)))))


def _similarity(a: _ShingleSets, b: _ShingleSets) -> float:
    return min(map(_jaccard, a, b)) if len(a) == len(b) else 0.0


def _jaccard(a: Hashes, b: Hashes) -> float:
    both = len(np.intersect1d(a, b, assume_unique=True))
    either = len(a) + len(b) - both
    return both / either if either else 1.0


def _candidates(sets: Sequence[_ShingleSets]) -> Iterator[tuple[int, int]]:
    empty = MinHash(_PERMUTATIONS, hashfunc=int)
    index = MinHashLSH(num_perm=_PERMUTATIONS, params=_BANDS)
    for position, shingles in enumerate(sets):
        if not shingles:
            continue
        sketch = empty.copy()
        sketch.update_batch((shingles[0] & _LOW_BITS).tolist())
        for earlier in index.query(sketch):
            yield earlier, position
        index.insert(position, sketch, check_duplication=False)


# Shared n-grams


def _prompt_ngrams(prompts: Sequence[_Views]) -> Similarities:
    owners = np.arange(len(prompts))
    parts = [_ngrams(prompt.prose, _MIN_NGRAMS) for prompt in prompts]
    shares = common_shares(parts, owners, _MAX_PROBLEMS, MIN_SHARE)
    # Sample data may be half of a short prompt, and different questions about the same data may
    # differ in one word. So a short prompt must be almost completely contained in the other one.
    for wholes in ([prompt.words for prompt in prompts], [prompt.named for prompt in prompts]):
        ngrams = [_ngrams(whole) for whole in wholes]
        contained = common_shares(ngrams, owners, _MAX_PROBLEMS, _MIN_WHOLE_SHARE)
        for pair, share in contained.items():
            shares[pair] = max(share, shares.get(pair, 0.0))
    return shares


def _solution_ngrams(problems: Sequence[ProblemText]) -> Similarities:
    owners = np.repeat(np.arange(len(problems)), [len(problem.solutions) for problem in problems])
    texts = [
        _ngrams(_code_items(solution), _MIN_NGRAMS)
        for problem in problems
        for solution in problem.solutions
    ]
    return common_shares(texts, owners, _MAX_PROBLEMS, MIN_SOLUTION_SHARE)


def _code_items(code: str) -> Hashes:
    """Compute a number per token; a name is its distance from its previous occurrence."""
    tokens = tokenize_code(plain_code(code))
    distances = np.where(tokens.distances < SIZE, tokens.distances, 0)
    return np.where(tokens.names, distances, tokens.numbers)


def _ngrams(words: Hashes, at_least: int = 1) -> Hashes:
    """Compute the set of n-grams; empty if there are fewer than ``at_least``."""
    ngrams = np.unique(ngram_hashes(words, SIZE))
    return ngrams if len(ngrams) >= at_least else ngrams[:0]


def common_shares(
    texts: Sequence[Hashes],
    problems: npt.NDArray[np.int64],
    max_problems: int,
    min_share: float,
) -> Similarities:
    """Find pairs of problems whose texts share many n-grams.

    Args:
        texts: The n-grams of each text, without repeats.
        problems: For each text, the position of its problem; ascending.
        max_problems: N-grams of more problems than this never count as common.
        min_share: Minimum number of common n-grams, as a share of the shorter text's.

    Returns:
        For each pair the largest share of any two of its texts.

    Raises:
        DataError: There are more than ``MAX_PAIRS``.
    """
    sizes = np.array([len(text) for text in texts], np.int64)
    if not sizes.sum():
        return {}
    postings = pd.DataFrame(
        {"ngram": np.concatenate(texts), "text": np.repeat(np.arange(len(texts)), sizes)}
    )
    postings = postings[postings.duplicated("ngram", keep=False)]
    postings["problem"] = problems[postings["text"]]
    holders = postings.drop_duplicates(["ngram", "problem"])["ngram"].value_counts()
    own = holders.index[(holders >= 2) & (holders <= max_problems)]
    postings = postings[postings["ngram"].isin(own)]
    pairs = postings.merge(postings, on="ngram")
    pairs = pairs[pairs["problem_x"] < pairs["problem_y"]]
    common = pairs.groupby(["text_x", "text_y"], as_index=False).size()
    smaller = np.minimum(sizes[common["text_x"]], sizes[common["text_y"]])
    common["share"] = common["size"] / smaller
    common = common[common["share"] >= min_share]
    first, second = problems[common["text_x"]], problems[common["text_y"]]
    shares = common.groupby([first, second])["share"].max()
    _check_number(len(shares))
    return {(int(a), int(b)): float(share) for (a, b), share in shares.items()}


# Excerpts


def _overlap(a: ProblemText, b: ProblemText, findings: dict[OverlapKind, float]) -> Overlap:
    by_code = set(findings) == {OverlapKind.SOLUTION_NGRAMS}
    texts = [("\n".join(side.solutions) if by_code else side.statement) for side in (a, b)]
    return Overlap(a, b, findings, _excerpts(*texts))


def _excerpts(a: str, b: str) -> tuple[str, str]:
    """Return a line of each text around the longest run of common words."""
    texts = a.split()[:_COMPARED_WORDS], b.split()[:_COMPARED_WORDS]
    lowered = [["".join(filter(str.isalnum, word.lower())) for word in words] for words in texts]
    run = SequenceMatcher(None, lowered[0], lowered[1], autojunk=False).find_longest_match()
    return _cut(texts[0], run.a), _cut(texts[1], run.b)


def _cut(words: list[str], at: int) -> str:
    # A word longer than an excerpt is truncated to that length.
    shown = words[max(0, at - 2) :][: _EXCERPT_CHARACTERS // 2]
    line = " ".join(word[:_EXCERPT_CHARACTERS] for word in shown)
    printable = line.encode("utf-8", "replace").decode("utf-8")
    if len(printable) <= _EXCERPT_CHARACTERS:
        return printable
    return printable[: _EXCERPT_CHARACTERS - 1] + "…"


# Reviews

_Name = Annotated[str, StringConstraints(strict=True, pattern=r"(?s)^[^/\s]+/.*\S")]
_Reason = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]


class Exemption(BaseModel):
    """A reviewed pair: ``a`` and ``b`` are ``dataset/problem_id``, in either order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: _Name
    b: _Name
    reason: _Reason

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.a, self.b))


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Overlaps by review status; ``stale`` are exemptions of pairs that do not overlap."""

    open: tuple[Overlap, ...]
    allowed: tuple[Overlap, ...]
    stale: tuple[Exemption, ...]


def review(overlaps: Sequence[Overlap], exemptions: Sequence[Exemption]) -> Reviewed:
    """Separate the reviewed overlaps from the open ones."""
    reasons = {entry.pair: entry.reason for entry in exemptions}
    reviewed = [replace(overlap, reviewed=reasons.get(overlap.pair)) for overlap in overlaps]
    pairs = {overlap.pair for overlap in overlaps}
    return Reviewed(
        open=tuple(overlap for overlap in reviewed if overlap.reviewed is None),
        allowed=tuple(overlap for overlap in reviewed if overlap.reviewed is not None),
        stale=tuple(entry for entry in exemptions if entry.pair not in pairs),
    )


def load_allowlist(path: str | None) -> list[Exemption]:
    """Read exemptions from a YAML list, a local path or any fsspec URL; none without a path.

    Raises:
        DataError: The file or an entry cannot be used; names file and entry.
    """
    if path is None:
        return []
    with reading(path), fsspec.open(path, "rb") as file:
        try:
            document = yaml.safe_load(file) or []
        except (yaml.YAMLError, RecursionError) as error:
            raise data_error(path, f"not YAML ({error}); fix it") from None
    if not isinstance(document, list):
        raise data_error(path, "not a list; write each exception as '- {a: …, b: …, reason: …}'")
    entries: dict[frozenset[str], Exemption] = {}
    for number, fields in enumerate(document, start=1):
        place = f"{path}: entry {number}"
        try:
            entry = Exemption.model_validate(fields)
        except ValidationError as error:
            needed = "an entry is {a: dataset/problem_id, b: dataset/problem_id, reason: why}"
            raise data_error(place, f"{describe(error)}; {needed}") from None
        if entries.setdefault(entry.pair, entry) is not entry:
            raise data_error(place, "the same pair as an earlier entry; keep one of them")
    return list(entries.values())
