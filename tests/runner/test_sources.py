"""Recorded completions as a source of generations."""

from services.runner.sources import RecordedSource
from shared.completions import RecordedCompletion
from shared.schemas import SampleId, sha256


async def test_lone_surrogates_are_replaced_since_no_file_could_hold_them() -> None:
    sample = SampleId("d", "p")
    source = RecordedSource({sample: RecordedCompletion(problem_id="p", completion="a\ud800b")})
    [generation] = [g async for g in source([sample])]
    assert generation.completion == "a\ufffdb"
    assert source.hashes() == {sample: sha256("a\ufffdb")}
    assert generation.model_dump_json()
