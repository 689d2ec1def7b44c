"""`plumb judge` into the folder of an earlier one; both over a real Redis."""

import pytest
from redis import Redis

from services.cli.execute import check_completions
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.ledger import Ledger
from shared.schemas import SampleId, sha256
from tests.shared.ledgers import RUN, enter, generation, verdict

SAMPLES = [SampleId("d1", f"p{number}") for number in range(3)]


def test_verdicts_of_other_completions_are_not_replaced(redis: Redis) -> None:
    ledger, folder = Ledger(redis, RUN), OutputFolder("outputs/mine")
    same = {sample: sha256("old") for sample in SAMPLES}
    check_completions(ledger, same, folder)  # a run that does not exist yet
    enter(ledger)
    ledger.record(*(generation(sample, "old") for sample in SAMPLES))
    ledger.record_verdict(verdict(generation(SAMPLES[0], "old")))
    check_completions(ledger, same, folder)
    with pytest.raises(OutputError) as caught:
        check_completions(ledger, dict.fromkeys(SAMPLES, "other"), folder)
    message = str(caught.value)
    assert "3 of 3 completions differ; another --output, or --force" in message
    assert "outputs/mine" in message
