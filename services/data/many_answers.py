"""Detection of problems with several right outputs, by the wording of their statements.

Each rule reads one sentence. A verb of output must be near, so that "eat them in any order" or
"choose any of the piles" is no sign; nor is "in any case" of letters.
"""

import re
from collections.abc import Iterator

_SHOWN = 160
_GOOD = (
    r"(?:valid|possible|correct|suitable|such|acceptable|optimal|feasible|right|appropriate|legal|"
    r"satisfying|good|best)"
)
_THING = (
    r"(?:answers?|solutions?|outputs?|ways?|arrangements?|orders?|orderings?|sequences?|"
    r"permutations?|arrays?|strings?|paths?|routes?|subsets?|sets?|pairs?|triples?|trees?|graphs?|"
    r"matri(?:x|ces)|numbers?|integers?|assignments?|colou?rings?|partitions?|plans?|schedules?|"
    r"configurations?|constructions?|combinations?|options?|variants?|possibilit(?:y|ies)|cycles?|"
    r"words?|grids?|tables?|distributions?|matchings?|tilings?|representations?|decompositions?|"
    r"strateg(?:y|ies)|results?|lists?|tours?|splits?|expressions?)"
)
_MANY = r"(?:multiple|several|many|more than one|two or more|various|different|numerous|other)"
# Verbs of output, and those that only are at the begin of a request ("Find any ...").
_PRINT = r"(?:print|output|return|display|report)(?:s|ed|ing)?"
_MAKE = (
    r"(?:(?:^|, |\bto |\bplease |\bthen |\bmust |\bshould )"
    r"(?:find|construct|build|restore|write|give|provide|show|submit|produce|determine|choose|list))"
)
_VERB = rf"(?:\b{_PRINT}|{_MAKE})\b"
_ACCEPTED = r"(?:accepted|acceptable|considered (?:as )?correct|correct|allowed|fine|okay|ok)"
_TEN = r"(?:10\s*(?:\^|-|−)|1e|1\.0e|0\.0)"

_RULES = tuple(
    re.compile(rule)
    for rule in (
        # Print any of them; output any valid answer; return an arbitrary one.
        rf"{_VERB}(?:,? \S+){{0,8}}? (?<!of )(?<!whether )(?:any|whichever|either|an arbitrary)"
        rf"(?: one| single)?(?: of (?:them|these|those)\b|"
        rf" of (?:the|all|such) (?:{_GOOD} )?{_THING}\b|"
        rf" (?:{_GOOD} )?{_THING}\b| {_GOOD}\b|,|\)|$| one\b)",
        # Print one of them; one of the possible answers.
        rf"{_VERB}(?: \S+){{0,3}}? one of (?:them|these|those|the {_GOOD} {_THING})\b",
        # Print a valid colouring.
        rf"{_VERB}(?: \S+){{0,2}}? (?:a|an|some|one) (?:valid|possible|correct|suitable|feasible)"
        rf"(?: \S+){{0,2}}? {_THING}\b(?! (?:of|for) (?:ways|lines|test))",
        # Any valid answer will be accepted; all correct solutions are accepted.
        rf"\b(?:any|all|every|each|either)(?: \S+){{0,4}}? (?:{_THING}|them|these|those|one)\b"
        rf"(?: \S+){{0,8}}? (?:is|are|be) (?:also |equally |all )?{_ACCEPTED}\b",
        rf"\baccepts? (?:any|all)\b(?: \S+){{0,3}}? {_THING}\b",
        # If there are several answers, any will do.
        rf"\b{_MANY}(?: \S+){{0,4}}? (?:{_THING}|such \S+)\b(?: \S+){{0,10}}? "
        rf"(?:any|arbitrary|whichever|either)\b(?: (?:of|one|will|is|are|can|may)\b|,|$)",
        # The answer is not unique.
        r"\b(?:answers?|solutions?|outputs?)\b(?: \S+){0,2}? "
        r"(?:(?:is|are|need|may|might|does|do) not|isn't|aren't|needn't)(?: \S+){0,3}? unique\b",
        r"\byour (?:answer|output|solution)s? (?:may|might|can|could) (?:differ|vary)\b",
        r"\bspecial (?:judge|checker)\b",
        # Within an absolute or relative error.
        r"\b(?:absolute|relative) (?:or|and) (?:relative|absolute) (?:error|precision)\b",
        rf"\b(?:absolute|relative) (?:error|precision|difference)\b(?: \S+){{0,10}}? {_TEN}",
        rf"\b(?:error|tolerance|precision|accuracy|deviation)\b(?: \S+){{0,8}}? {_TEN}",
        rf"\b(?:differ|differs|accurate|correct)\b(?: \S+){{0,8}}? {_TEN}",
    )
)
_ORDER = re.compile(
    rf"\b{_PRINT}\b(?: \S+){{0,25}}? (?:in|with) (?:any|an arbitrary|arbitrary|no particular)"
    r"(?: valid| possible)? (?:order|sequence)\b|"
    rf"\b(?:order|sequence)\b(?: \S+){{0,8}}? {_PRINT}\b(?: \S+){{0,8}}? "
    r"(?:does not|doesn't|do not|don't|is not|isn't) (?:matter|important|relevant)"
)
# What is in any order then is the input, or what the story does.
_NOT_OUTPUT = re.compile(
    r"\b(?:input|given|perform\w*|apply\w*|visit\w*|us(?:e|ed|ing)|rearrang\w*|reorder\w*|"
    r"shuffl\w*|permut(?:e|ed|ing)|eat\w*|process\w*|minimum|maximum|number of|how many|count|"
    r"probability|whether)\b"
)
_DECIDES = re.compile(
    r"\b(?:if|whether) (?:it is|it's) (?:im)?possible to\b|\bdetermine (?:if|whether)\b"
)
_CASE = re.compile(r"\bin any (?:letter |\S+ )?case\b|\b(?:upper|lower) ?-?case\b|\bcase[ -]insens")


def many_answers(statement: str) -> str | None:
    """Return the sentence by which a problem has several right outputs, if there is one."""
    for sentence in _sentences(statement):
        if _says_so(sentence.lower().rstrip(" .!;:")):
            return sentence if len(sentence) <= _SHOWN else f"{sentence[: _SHOWN - 1]}…"
    return None


def _sentences(statement: str) -> Iterator[str]:
    """Split a statement; formulas lose their dollars, and lines that go on are joined."""
    text = re.sub(r"\$+|[{}*_`]", "", statement.replace("\\,", " "))
    for part in re.split(r"\n\s*\n|\n\s*[-•]|(?<=[.!?;])\s+", text):
        if sentence := " ".join(part.split()):
            yield sentence


def _says_so(sentence: str) -> bool:
    if _CASE.search(sentence) or _DECIDES.search(sentence):
        return False
    if match := _ORDER.search(sentence):
        return not _NOT_OUTPUT.search(match[0]) and not sentence.startswith("input")
    return any(rule.search(sentence) for rule in _RULES)
