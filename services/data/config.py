"""What `plumb data prepare` is to make, and of what: the YAML file `configs/data.yaml`."""

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from services.data.ids import parse_ids
from shared.errors import DataError

LayoutName = Literal["humaneval", "mbpp", "code_contests", "jsonl"]
# Part of file names and of metric keys.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LocalSource(_Section):
    """A file as it is published, or a folder of them: JSONL, parquet or Arrow."""

    kind: Literal["local"]
    path: str = Field(min_length=1)


class HubSource(_Section):
    """A data set of the Hugging Face hub at one revision: a commit, or a branch or tag.

    ``name`` is one of the data set's configurations.
    """

    kind: Literal["huggingface"]
    path: str = Field(min_length=1)
    revision: str = Field(min_length=1)
    split: str = Field(min_length=1)
    name: str | None = None


class SandboxSource(_Section):
    """A data set that a SandboxFusion serves, under the name that it has there.

    ``split`` goes along as ``extra.split``, which SandboxFusion itself does not look at.
    """

    kind: Literal["sandbox_fusion"]
    url: str = "http://localhost:8080"
    dataset: str = Field(min_length=1)
    split: str | None = None


AnySource = Annotated[LocalSource | HubSource | SandboxSource, Field(discriminator="kind")]


class DatasetConfig(_Section):
    """One data set to prepare; its name is its key.

    ``role``: ``train`` for what will be trained on, ``eval`` for what will be measured with.
    ``generated_tests``: CodeContests' own, in addition to the public and private ones.
    ``solutions``: how many reference solutions of a problem are kept, for the checks.
    ``remove_near_duplicates``: near copies within the split go as exact ones do, which changes the
    number of problems; sets with a fixed list of problems are left whole.
    ``version``, ``licence`` and ``source_url`` go into the manifest.
    """

    layout: LayoutName
    source: AnySource
    split: str | None = None
    role: Literal["train", "eval"] = "eval"
    ids: str | None = None
    generated_tests: bool = False
    solutions: int = Field(default=3, ge=0)
    remove_near_duplicates: bool = False
    version: str = ""
    licence: str = ""
    source_url: str = ""

    @field_validator("ids")
    @classmethod
    def _ranges(cls, ids: str | None) -> str | None:
        if ids is not None:
            try:
                parse_ids(ids)
            except DataError as error:
                raise ValueError(str(error)) from None
        return ids


class NearConfig(_Section):
    """Near copies by words: candidates from MinHash, confirmed by the exact Jaccard index.

    ``threshold`` is the least Jaccard index of the sets of shingles, runs of ``shingle_words``.

    Measured on HumanEval, MBPP and 40 problems of CodeContests: 99 of 100 copies with names,
    headings or layout changed reach 0.96 (0.79 with two of these changed at once). Of the sets' own
    pairs, the 14 that ask the same question have 0.778 and more; all others have up to 0.765, and
    from 0.7 on ask two questions about one thing (rotate a list to the left, to the right).
    """

    shingle_words: int = Field(default=3, ge=1, le=20)
    threshold: float = Field(default=0.77, gt=0, le=1)
    permutations: int = Field(default=128, ge=16, le=1024)
    seed: int = Field(default=1, ge=0, lt=2**32)


class NgramConfig(_Section):
    """Shared n-grams of prompts, and of reference solutions.

    A pair counts where ``min_share`` of the n-grams of the shorter text (``min_solution_share`` for
    solutions) are in the other, and the shorter has at least ``min_ngrams``. Shorter prompts, and
    prompts without the names of their code, count where ``min_whole_share`` of them is in the
    other. N-grams in more than ``max_problems`` problems are nobody's own (phrases that every
    problem has) and never count as shared.

    In the same data sets, different problems share up to 0.30 of their prompts' n-grams, 0.81 where
    the prompts are short, and up to 0.93 of their solutions', or all where those are shorter.
    """

    size: int = Field(default=13, ge=5, le=50)
    min_ngrams: int = Field(default=20, ge=1)
    min_share: float = Field(default=0.4, gt=0, le=1)
    min_whole_share: float = Field(default=0.9, gt=0, le=1)
    min_solution_share: float = Field(default=0.95, gt=0, le=1)
    max_problems: int = Field(default=10, ge=2)


class ChecksConfig(_Section):
    """What counts as an overlap. ``allow``: a file of reviewed exceptions."""

    near: NearConfig = NearConfig()
    ngrams: NgramConfig = NgramConfig()
    allow: str | None = None


class PrepareConfig(_Section):
    """Folders: ``output`` for parquet, ``manifests``, and ``raw`` for what was fetched.

    ``verify``: ``key=value`` of the runs in which reference solutions are judged.
    """

    datasets: dict[str, DatasetConfig] = Field(min_length=1)
    output: str = "data/eval"
    manifests: str = "data_manifests"
    raw: str = "data/raw"
    verify: list[str] = Field(default_factory=list)
    checks: ChecksConfig = ChecksConfig()

    @model_validator(mode="after")
    def _names(self) -> Self:
        for name in self.datasets:
            if not NAME.fullmatch(name):
                allowed = "letters, digits, '.', '_' and '-'"
                raise ValueError(f"the data set's name {name!r} may only have {allowed}")
        return self
