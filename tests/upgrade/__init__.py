"""Releases of different versions side by side."""
