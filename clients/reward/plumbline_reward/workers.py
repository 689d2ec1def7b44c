"""A pool of daemon threads, started on demand and ended when idle.

Unlike those of ``concurrent.futures`` they do not keep the interpreter from ending while a request
is under way.
"""

import threading
from collections import deque
from collections.abc import Callable

IDLE_SECONDS = 15.0


class Workers:
    """At most ``limit`` threads that call what is submitted, in order."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._tasks: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Have ``task`` called; it must not raise.

        Raises:
            RuntimeError: There is no thread to call it, and none can be started.
        """
        with self._changed:
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._changed.notify()
            elif self._threads < self._limit:
                self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:
            if self._threads == 0:
                self._tasks.pop()
                raise
            return  # one of the others will call it
        self._threads += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                in_time = self._changed.wait_for(lambda: bool(self._tasks), IDLE_SECONDS)
                self._idle -= 1
                if not in_time:
                    self._threads -= 1
                    return
                task = self._tasks.popleft()
            task()
