"""How many requests may be in flight at a time: more while that pays, fewer when servers mind."""

from dataclasses import dataclass

_START = 16
_CUT = 0.7
_ROUNDS_TO_CAP = 32
_SMALL_LIMITS_STEP = 4
_COMPARED_AT = 1.5
_PAYS = 0.25
_ROUNDS_HELD = 8


@dataclass(slots=True)
class _Round:
    """As many answers as the limit was; ``load`` sums the requests in flight of each."""

    size: int
    answers: int = 0
    load: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Measured:
    """``load`` requests in flight gave ``speed`` tokens a second, all of them together."""

    load: float
    speed: float


class ConcurrencyLimit:
    """A number between 1 and ``cap`` that follows what the servers bear.

    It begins low and grows by one with each answer, which doubles it in a round, until something
    speaks against it; from then on by a 32nd of the cap per round, or a quarter of itself where
    that is less. A round is as many answers as the limit. Answers that came while nobody waited for
    a place say nothing, and count as none.

    - A server that asks to be left alone, or cannot be reached, cuts it by 30 %. What others met
      who were on their way at the same time is the same trouble and cuts no further.
    - More in flight always makes each answer slower; it pays as long as all of them together become
      faster. By Little's law that speed is the load divided by the seconds a token takes. It is
      compared each time the load has grown by half: where less than a quarter of that growth
      arrived as speed, the servers are full and the rest waits in their queues. The limit goes back
      to where it was, and more is tried again after 8 rounds.
    """

    def __init__(self, cap: int) -> None:
        self.cuts = 0
        self._cap = cap
        self._limit = float(min(cap, _START))
        self._swift = True
        self._round = _Round(self.value)
        self._base: _Measured | None = None
        self._held = 0

    @property
    def value(self) -> int:
        return int(self._limit)

    def answered(self, *, load: int, seconds: float, tokens: int | None, awaited: bool) -> None:
        """An answer came.

        Args:
            load: Requests in flight as its own set out, which are those that it waited behind.
            seconds: What it took.
            tokens: How many it has, where that is known.
            awaited: Whether somebody waited for a place.
        """
        if not awaited:
            return
        now = self._round
        now.answers += 1
        now.load += load
        now.seconds += seconds
        now.tokens += tokens or 0
        if not self._held:
            self._limit = min(float(self._cap), self._limit + self._gain())
        if now.answers >= now.size:
            self._end_round()

    def cut(self, cuts: int) -> None:
        """A request was refused, or lost, that set out when :attr:`cuts` was ``cuts``."""
        if cuts != self.cuts:
            return
        self.cuts += 1
        self._limit = max(1.0, self._limit * _CUT)
        self._swift = False
        self._base = None
        self._held = 0
        self._round = _Round(self.value)

    def _gain(self) -> float:
        """What one answer adds."""
        if self._swift:
            return 1.0
        step = min(self._cap / _ROUNDS_TO_CAP, self._limit / _SMALL_LIMITS_STEP)
        return max(1.0, step) / self._limit

    def _end_round(self) -> None:
        measured = _measured(self._round)
        if self._held:
            self._held -= 1
            self._base = measured
        elif self._base is None or measured is None:
            self._base = measured
        elif measured.load >= _COMPARED_AT * self._base.load:
            if _pays(self._base, measured):
                self._base = measured
            else:
                self._limit = min(self._limit, max(1.0, self._base.load))
                self._held = _ROUNDS_HELD
                self._swift = False
        self._round = _Round(self.value)


def _measured(done: _Round) -> _Measured | None:
    if not done.tokens or done.seconds <= 0:
        return None
    load = done.load / done.answers
    return _Measured(load, load * done.tokens / done.seconds)


def _pays(before: _Measured, now: _Measured) -> bool:
    growth = now.load / before.load - 1
    return now.speed >= before.speed * (1 + _PAYS * growth)
