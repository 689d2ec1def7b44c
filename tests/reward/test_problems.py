"""Problems by name: read once, kept in a file, checked against their digests."""

import json
from pathlib import Path

import pytest

from services.data.records import write_dataset
from services.reward.models import Purpose, RefusedError, ScoreItem
from services.reward.problems import ProblemStore
from services.reward.settings import RewardSettings
from shared.certificates import Certificate, ProblemCertificate
from shared.config import RULES
from shared.errors import DataError
from shared.reference import reference_of
from shared.schemas import Problem
from shared.text import unpack
from tests.shared.ledgers import problem


def written(path: Path, problems: list[Problem]) -> str:
    write_dataset(str(path), problems)
    return str(path)


def item(one: Problem) -> ScoreItem:
    return ScoreItem(dataset=one.dataset, problem_id=one.problem_id, completion="")


async def resolve(store: ProblemStore, *items: ScoreItem) -> list[Problem]:
    resolved = await store.resolve(items, Purpose.VALIDATION, allow_eval=False)
    return [Problem.model_validate_json(unpack(store.record(one))) for one in resolved]


async def test_records_are_the_problems(tmp_path: Path) -> None:
    problems = [problem(f"p{number}", "d/ü") for number in range(200)]
    store = ProblemStore([written(tmp_path / "a.parquet", problems)])
    wanted = [problems[150], problems[3], problems[150]]
    assert await resolve(store, *map(item, wanted)) == wanted
    references = [ScoreItem(ground_truth=reference_of(one).text, completion="") for one in wanted]
    assert await resolve(store, *references) == wanted
    store.close()


async def test_one_unusable_row_harms_no_other(tmp_path: Path) -> None:
    broken = problem("broken", ground_truth='{"inputs": []}')
    store = ProblemStore([written(tmp_path / "a.parquet", [problem(), broken])])
    assert await resolve(store, item(problem())) == [problem()]
    with pytest.raises(RefusedError, match="prepare the data again"):
        await resolve(store, item(broken))
    store.close()


async def test_the_role_is_in_the_manifest(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [problem()])
    line = {"dataset": "d1", "role": "train"}
    (tmp_path / "a.manifest.jsonl").write_text(json.dumps(line) + "\n")
    store = ProblemStore([path])
    assert store.datasets()["d1"].role == "train"
    await store.resolve([item(problem())], Purpose.TRAIN, allow_eval=False)
    store.close()


async def test_data_that_vanish_are_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    store = ProblemStore([written(path, [problem()])])
    path.unlink()
    with pytest.raises(RefusedError, match="cannot be read") as caught:
        await resolve(store, item(problem()))
    assert caught.value.status == 503 and caught.value.retry_after
    store.close()


@pytest.mark.parametrize(
    ("use", "weights"),
    [(None, [1, 1, 1]), ("weight", [1, 0.4, 1]), (0.4, [1, 1, 1]), (0.5, [1, 0, 1])],
)
async def test_a_problem_has_the_weight_of_its_certificate(tmp_path, use, weights) -> None:
    problems = [problem(f"p{number}") for number in range(3)]
    file = written(tmp_path / "a.parquet", problems)
    counts = {"right_accepted": 1, "wrong_rejected": 2}
    certified = [
        ProblemCertificate(problem_id=one.problem_id, digest=reference_of(one).digest, **found)
        for one, found in zip(
            problems, [counts, {**counts, "wrong_accepted": 3}, {"wrong_rejected": 1}], strict=True
        )
    ]
    certificate = Certificate(
        dataset=problems[0].dataset, data_sha256="", programs_sha256="", seed=0, mutants=0,
        inputs=0, rules=RULES, method="batch", checker="tokens", problems=certified,
    )  # fmt: skip
    place = tmp_path / "a.certificate.json"
    place.write_text(certificate.model_dump_json())
    store = ProblemStore([file], RewardSettings(PLUMBLINE_REWARD_CERTIFICATES=use).certificates)
    resolved = await store.resolve([*map(item, problems)], Purpose.VALIDATION, allow_eval=False)
    assert [store.weight(one) for one in resolved] == pytest.approx(weights)
    store.close()
    place.write_text(certificate.model_copy(update={"rules": RULES + 1}).model_dump_json())
    if use is not None:
        with pytest.raises(DataError, match=r"a.certificate.json: for rules"):
            ProblemStore([file], use)
