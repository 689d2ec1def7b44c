from collections.abc import Iterator

import pytest

from tests.parity import verl
from tests.parity.scorer import Scorer
from tests.sandboxes import sandbox


@pytest.fixture(scope="session")
def scorer() -> Iterator[Scorer]:
    """verl's scorer; skips the test where it cannot be had."""
    try:
        modules = verl.load()
    except verl.ScorerMissingError as error:
        pytest.skip(str(error))
    scorer = Scorer(modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer.package, "check_correctness", scorer.recorded_check)
        yield scorer


@pytest.fixture(scope="session")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox at ``SANDBOX_URL``, or the one of this repository."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url
