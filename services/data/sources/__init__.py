"""Readers of the public layouts, one module each, behind the ``Source`` interface of ``base``."""
