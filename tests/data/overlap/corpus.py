"""Several hundred different problems in the style of the three public data sets."""

import json
from pathlib import Path
from random import Random

from tests.data.overlap.support import problem

DEMO = Path(__file__).parents[3] / "demo" / "problems"

_STORIES = [
    "A lighthouse keeper writes down how many ships pass his tower in every hour of the night.",
    "The beekeeper of a mountain village weighs each of her hives before the first frost comes.",
    "During the carnival a juggler throws coloured rings to children who stand along the fence.",
    "An archivist found a drawer of punched cards, and nobody remembers what they once counted.",
    "Two rival bakeries on the market square lower their prices several times on the same day.",
    "A tram driver notes at which stops passengers get on without having bought a ticket.",
    "The museum wants to hang its portraits so that visitors do not have to walk back and forth.",
    "Seven dwarfs share the gems from their mine, but they never trust each other's arithmetic.",
    "A botanist measures the height of sunflowers that grow along an abandoned railway track.",
    "The radio telescope repeats a signal that consists of short and of somewhat longer pulses.",
    "In a chess club every member keeps a diary of victories, of defeats and of boring draws.",
    "A weaver threads her loom with yarns whose thickness changes from one spool to the next.",
    "The ferry company paints numbers on its cars' parking spaces, and some have worn away.",
    "A goldsmith melts down old coins, each of them with a different share of pure silver.",
]
_TASKS = [
    ("largest_gap", "values",
     "find the greatest distance between neighbours once all are put into ascending order"),
    ("count_peaks", "heights",
     "count the places that are strictly greater than both places beside them"),
    ("longest_rise", "series",
     "tell how long the longest stretch is in which nothing ever gets smaller"),
    ("most_common", "marks",
     "name whatever occurs most often, and the smallest of those where several do"),
    ("split_evenly", "weights",
     "decide whether a cut exists that leaves equal sums on its left and on its right"),
    ("bracket_depth", "text",
     "work out how deeply the parentheses are nested, or minus one where they do not match"),
    ("digit_product", "number",
     "multiply all digits that are not zero and repeat it until a single digit is left"),
    ("cheapest_pair", "prices",
     "choose two different items whose price together comes closest to the budget from below"),
    ("rotate_words", "sentence",
     "move the initial letter of every word to its end and turn the order of the words round"),
    ("missing_numbers", "labels",
     "list in ascending order which labels between the least and the greatest one are absent"),
    ("spiral_sum", "grid",
     "add up the cells that a spiral from the upper left corner visits at every second step"),
    ("water_level", "walls",
     "compute how much rain stays between the walls after a storm that floods everything"),
]  # fmt: skip
_TWISTS = [
    "Entries that were crossed out count as nothing.",
    "An empty record has the answer zero by agreement.",
    "Negative entries are mistakes of the clerk and have to be skipped.",
    "Two records in a row may be equal, which changes nothing.",
    "Since the answer may be huge, print its remainder modulo 998244353.",
    "The oldest entry is unreliable, so leave it out of the reckoning.",
    "Treat capital letters and small ones alike wherever there are any.",
]
_DEEDS = [
    "count the odd digits in", "sort by their length", "find the second largest of",
    "remove all blanks around", "multiply together", "join with a semicolon",
    "reverse every other one of", "check whether none is missing among", "take the average of",
]  # fmt: skip
_THINGS = [
    "the words of a sentence", "the keys of a dictionary", "the elements of nested lists",
    "two given tuples", "the rows of a matrix", "the fields of a comma separated line",
    "the prime factors of a number", "the characters of a string", "the angles of a polygon",
    "the nodes of a binary tree",
]  # fmt: skip
_VARIABLES = ["total", "low", "high", "step", "mark", "left", "right", "width", "pace", "rest"]
_INPUT = (
    "The first line contains one integer t (1 ≤ t ≤ 10^4) — the number of test cases. "
    "The first line of each test case contains one integer n (1 ≤ n ≤ 2 ⋅ 10^5)."
)


def demo_problems():
    rows = [
        json.loads(line)
        for path in sorted(DEMO.glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [
        problem(row["dataset"], row["problem_id"], row["prompt"], row["reference_solution"])
        for row in rows
    ]


def generated_problems():
    """More than 250 different questions; two may share a story, a task or a condition."""
    random = Random(7)
    long = [
        (_contest, _docstring)[(s + t) % 2](story, task, _TWISTS[(3 * s + t) % 7], random)
        for s, story in enumerate(_STORIES)
        for t, task in enumerate(_TASKS)
    ]
    return long + [_assertions(deed, thing, random) for deed in _DEEDS for thing in _THINGS]


def program(random):
    """Some statements, never the same twice."""
    names = random.sample(_VARIABLES, 5)
    lines = [f"{name} = {random.randint(2, 99)}" for name in names]
    for _ in range(12):
        to, one, other = random.choices(names, k=3)
        sign = random.choice(["+", "-", "*", "//", "%", "^", "|", "&"])
        lines.append(f"{to} = {one} {sign} ({other} + {random.randint(2, 99)})")
    return "\n".join(lines)


def _contest(story, task, twist, random):
    _, argument, question = task
    number = random.randint(10, 9999)
    prompt = (
        f"{story} Given are the n numbers b_1, b_2, …, b_n of this record. Your programme has to "
        f"{question}, where b_i is what was written down first. {twist}\n\n"
        f"Input\n\n{_INPUT} The second line holds b_1, …, b_n (0 ≤ b_i ≤ {number + 9}).\n\n"
        f"Output\n\nFor each test case, print one line.\n\nExample\n\nInput\n\n1\n3\n"
        f"{number} 4 {number + 2}\n\nOutput\n\n{number % 7}\n\nNote\n\nIn the first test case of "
        f"the example nothing else is possible.\n"
    )
    code = f"{argument} = list(map(int, input().split()))\n{program(random)}\nprint({argument})\n"
    return problem("contests", f"{number} {task[0]}", prompt, code)


def _docstring(story, task, twist, random):
    name, argument, question = task
    number = random.randint(10, 9999)
    signature = f"def {name}_{number}({argument}, limit):\n"
    prompt = (
        f'{signature}    """{story}\n    For {argument}, {question}.\n'
        f"    {twist} The limit bounds every one of {argument}.\n\n"
        f"    For example:\n    >>> {name}_{number}([{number}, 4, {number + 2}], 50)\n"
        f'    {number % 7}\n    """\n'
    )
    body = "\n".join(f"    {line}" for line in program(random).split("\n"))
    return problem("functions", f"f/{number}", prompt, f"{prompt}{body}\n    return {argument}\n")


def _assertions(deed, thing, random):
    name = f"{deed.split()[0]}_{thing.split()[-1]}"
    tests = "\n".join(
        f"assert {name}({[random.randint(-50, 50) for _ in range(4)]}) == {random.randint(0, 99)}"
        for _ in range(3)
    )
    prompt = (
        f"Write a function to {deed} {thing}.\n\nThe code has to pass these assertions:\n{tests}"
    )
    body = "\n".join(f"    {line}" for line in program(random).split("\n"))
    return problem("short", name, prompt, f"def {name}(items):\n{body}\n    return items\n")
