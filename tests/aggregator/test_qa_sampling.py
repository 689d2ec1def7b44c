from hypothesis import given
from hypothesis import strategies as st

from services.aggregator.qa_logs import apportion, choose
from shared.schemas import SampleId
from shared.statuses import FinalStatus

STATUSES = st.sampled_from(FinalStatus)
QUOTED = [s for s in FinalStatus if s not in (FinalStatus.EMPTY_OUTPUT, FinalStatus.API_ERROR)]
SAMPLES = st.builds(
    SampleId, st.just("d"), st.text(min_size=1, max_size=3), st.integers(0, 3)
)  # fmt: skip
RUNS = st.dictionaries(SAMPLES, STATUSES, max_size=60)
QUOTAS = st.fixed_dictionaries({status: st.integers(0, 12) for status in QUOTED})
COUNTS = st.dictionaries(STATUSES, st.integers(0, 50))


def run(**counts: int) -> dict[SampleId, FinalStatus]:
    return {
        SampleId("d", f"{status}{number:02}"): FinalStatus(status)
        for status, count in counts.items()
        for number in range(count)
    }


def quota(**counts: int) -> dict[FinalStatus, int]:
    return {FinalStatus(status): count for status, count in counts.items()}


@given(RUNS, QUOTAS, st.integers())
def test_the_choice_is_as_large_as_the_quota_or_the_run(
    statuses: dict[SampleId, FinalStatus], wanted: dict[FinalStatus, int], seed: int
) -> None:
    choice = choose(statuses.items(), wanted, seed)
    usable = [sample for sample, s in statuses.items() if s is not FinalStatus.API_ERROR]
    assert len(choice.samples) == min(sum(wanted.values()), len(usable))
    assert len(set(choice.samples)) == len(choice.samples)
    assert set(choice.samples) <= set(usable)


@given(RUNS, QUOTAS, st.integers())
def test_every_quota_is_met_where_there_are_enough(
    statuses: dict[SampleId, FinalStatus], wanted: dict[FinalStatus, int], seed: int
) -> None:
    choice = choose(statuses.items(), wanted, seed)
    there = list(statuses.values())
    for status, number in wanted.items():
        chosen = sum(statuses[sample] is status for sample in choice.samples)
        assert chosen >= min(number, there.count(status))
        assert choice.chosen.get(status, 0) == chosen
        assert choice.filled.get(status, 0) == max(0, chosen - number)


@given(RUNS, QUOTAS, st.integers(), st.randoms())
def test_the_order_of_the_samples_does_not_matter(
    statuses: dict[SampleId, FinalStatus], wanted: dict[FinalStatus, int], seed: int, shuffler
) -> None:
    items = list(statuses.items())
    shuffler.shuffle(items)
    assert choose(items, wanted, seed) == choose(statuses.items(), wanted, seed)


@given(st.integers(0, 300), COUNTS)
def test_apportioned_numbers_are_whole_and_near_their_share(
    number: int, available: dict[FinalStatus, int]
) -> None:
    total = sum(available.values())
    counts = apportion(number, available)
    assert sum(counts.values()) == min(number, total)
    for status, there in available.items():
        assert 0 <= counts[status] <= there
        if number < total:
            assert abs(counts[status] - number * there / total) < 1


def test_a_choice_that_is_the_same_everywhere() -> None:
    choice = choose(run(success=20).items(), quota(success=3), 7)
    assert [s.problem_id for s in choice.samples] == ["success03", "success09", "success12"]
