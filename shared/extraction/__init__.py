"""Finding the program in a completion: pure functions, which never raise and never run anything."""

from shared.extraction.completion import extract
from shared.extraction.result import Extraction, ExtractionPolicy, Reason
from shared.extraction.verl import extract_verl

__all__ = ["Extraction", "ExtractionPolicy", "Reason", "extract", "extract_verl"]
