"""The finished run of the exports, with every special case."""

from tests.exports.conftest import finished

__all__ = ["finished"]
