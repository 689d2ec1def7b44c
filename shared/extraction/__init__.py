"""Code extraction from completions: pure functions that never raise and never run code."""

from shared.extraction.choice import Extraction
from shared.extraction.completion import extract, extract_verl
from shared.extraction.python_source import called_functions, future_imports

__all__ = ["Extraction", "called_functions", "extract", "extract_verl", "future_imports"]
