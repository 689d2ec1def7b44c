"""Code extraction from completions: pure functions that never raise and never run code."""

from shared.extraction.choice import Extraction
from shared.extraction.completion import extract, extract_verl

__all__ = ["Extraction", "extract", "extract_verl"]
