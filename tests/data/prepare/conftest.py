import pytest

from tests.data.prepare.support import Desk


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)
