from collections.abc import Iterator

import pytest

from tests.sandboxes import own_sandbox


@pytest.fixture(scope="session")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox of this repository, as a process of its own."""
    with own_sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url
