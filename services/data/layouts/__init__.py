"""What the rows of the public data sets mean, one module a layout, behind ``base.Layout``."""

from services.data.layouts.registry import LAYOUTS, LayoutKind

__all__ = ["LAYOUTS", "LayoutKind"]
