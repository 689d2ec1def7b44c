"""How far a preparation is, for whoever watches."""

from typing import Protocol


class Progress(Protocol):
    """``begin`` names a step; ``advance`` counts within it, for instance rows."""

    def begin(self, step: str) -> None: ...

    def advance(self) -> None: ...

    def end(self, result: str) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, step: str) -> None: ...

    def advance(self) -> None: ...

    def end(self, result: str) -> None: ...
