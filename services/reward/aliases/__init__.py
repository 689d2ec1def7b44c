"""Routes in the shapes of other trainers' remote rewards, each a translation of ``/v1/score``."""

from services.reward.aliases.routes import ALIAS_PATHS, AliasRoutes

__all__ = ["ALIAS_PATHS", "AliasRoutes"]
