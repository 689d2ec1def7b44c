"""`plumb judge` into the folder of an earlier one; both over a real Redis."""

import pytest
from redis import Redis

from services.cli.execute import check_completions
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.ledger import Ledger
from shared.schemas import SampleId, sha256
from shared.statuses import FinalStatus
from tests.shared.ledgers import RUN, enter, generation, verdict

SAMPLES = [SampleId("d1", f"p{number}") for number in range(3)]


def test_verdicts_of_other_completions_are_not_replaced(redis: Redis) -> None:
    ledger, folder = Ledger(redis, RUN), OutputFolder("outputs/mine")
    same = {sample: sha256("old") for sample in SAMPLES}
    check_completions(ledger, same, folder)  # a run that does not exist yet
    enter(ledger)
    ledger.record_all([(generation(sample, "old"), None) for sample in SAMPLES])
    check_completions(ledger, dict.fromkeys(SAMPLES, "other"), folder)  # none is judged
    for sample in SAMPLES[:2]:
        ledger.record_verdict(verdict(generation(sample, "old")))
    unjudged = verdict(generation(SAMPLES[2], "old"), FinalStatus.API_ERROR)
    ledger.record_verdict(unjudged)  # is to be judged again anyhow
    check_completions(ledger, same, folder)
    with pytest.raises(OutputError) as caught:
        check_completions(ledger, dict.fromkeys(SAMPLES, "other"), folder)
    message = str(caught.value)
    assert "2 of 3 completions differ; another --output, or --force" in message
    assert "outputs/mine" in message
