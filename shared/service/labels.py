"""Values of a metric's label that others choose: a bounded number of them."""

import threading

OTHER = "other"


class LabelValues:
    """The first ``limit`` values; every other one is ``other``. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def admit(self, value: str) -> str:
        """The label of a value."""
        with self._lock:
            if value not in self._known and len(self._known) >= self._limit:
                return OTHER
            if value != OTHER:
                self._known.add(value)
            return value
