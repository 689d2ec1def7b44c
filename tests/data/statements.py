"""Statements with the label whether several outputs are right, made by a small grammar."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    text: str
    many: bool


_MANY_CLOSINGS = (
    "If there are multiple answers, print any of them.",
    "If there are several possible {things}, you may print any.",
    "If there exist many solutions, output any one of them.",
    "In case of several {things}, print any.",
    "If there is more than one valid {thing}, output any of them.",
    "If multiple {things} satisfy the conditions, you can output any of them.",
    "You may output any valid {thing}.",
    "Any valid {thing} will be accepted.",
    "Any {thing} that satisfies the constraints is accepted.",
    "All correct {things} are accepted.",
    "Print any suitable {thing}.",
    "Output one of the possible {things}.",
    "If there are several answers, print one of them.",
    "Print a valid {thing} on the second line.",
    "Find any such {thing} and print its elements.",
    "The answer is not necessarily unique.",
    "Note that the solution may not be unique.",
    "Print the elements of the {thing} in any order.",
    "Output the k indices in arbitrary order, separated by spaces.",
    "You can print the {things} in any order.",
    "The order in which the {things} are printed does not matter.",
    "Print YES and, on the next line, any {thing} with this property; otherwise print NO.",
    'If an answer exists, output "YES" followed by any possible {thing}.',
    "If there are many optimal {things}, return any of them.",
    "Your answer is correct if its absolute or relative error does not exceed 10^{{-6}}.",
    "The relative error of the answer must be at most 1e-9.",
    "Print the real number with an absolute error of no more than 10^-4.",
    "Answers that differ from the jury's by less than 10^-5 are accepted.",
    "Your output may differ from the sample as long as it is a correct {thing}.",
    "If there are multiple possible {things}, print an arbitrary one.",
    "If two or more {things} are possible, any of them is fine.",
    "It is enough to print any {thing}.",
)
_ONE_CLOSINGS = (
    "If there are multiple answers, print the lexicographically smallest one.",
    "If there are several such {things}, print the one with the smallest index.",
    "In case of a tie, output the smallest value.",
    "Print the number of different {things} modulo 998244353.",
    "Print the minimum number of operations.",
    "You can choose any of the piles and remove any positive number of stones.",
    "He can visit the rooms in any order. Print the maximum number of coins.",
    "You can perform the operations in any order any number of times.",
    "The {things} are given in arbitrary order. Print the median.",
    "The input may contain several test cases. For each one, print a single integer.",
    "You may print every letter in any case (upper or lower).",
    'You can output "YES" in any case (for example, "yEs").',
    'Print "YES" if it is possible to build any such {thing}, and "NO" otherwise.',
    "Print the largest value that any of the players can reach.",
    "Print the elements of the {thing} in increasing order.",
    "Two {things} are different if they differ in any position. Count them.",
    "If any of the {things} is empty, print -1.",
    "If there is no such {thing}, print -1. Otherwise print its unique representation.",
    "Print the probability that any two of them meet, as a fraction p/q in lowest terms.",
    "It can be shown that the answer is unique.",
    "The tree is given by its edges, in any order. Print its diameter.",
    "Rearrange the strings in any order to maximize the prefix; print its length.",
    "Find the minimum cost to reach any of the exits.",
    "Print the sum over all {things}.",
    "You can rearrange the letters in any order. Print the number of distinct words.",
    "Each test contains multiple test cases. The first line contains the number of test cases.",
    "There are many ways to cross the river; print how many, modulo 10^9+7.",
    "If several {things} have the same value, print the first of them in the input.",
    "Print the k smallest {things} in order of their sum.",
    "Print exactly two integers: the minimum and the maximum length of any valid {thing}.",
    "Determine whether any valid {thing} exists.",
    "For any query, print one integer.",
)
_THINGS = (
    ("answer", "answers"), ("permutation", "permutations"), ("path", "paths"), ("array", "arrays"),
    ("colouring", "colourings"), ("sequence", "sequences"), ("string", "strings"),
    ("arrangement", "arrangements"), ("subset", "subsets"), ("tree", "trees"),
)  # fmt: skip
_STORIES = (
    "Alice has n stones of different colours and wants to give some of them to Bob.",
    "You are given a graph with n vertices and m edges. Each edge has a length.",
    "A knight can move to any free cell of the board in one step.",
    "There are several cities, and any two of them are connected by a road.",
    "Polycarp can apply the operation any number of times, possibly zero.",
    "The robots may be started in any order, and each of them needs a different time.",
)
_INPUTS = (
    "The first line contains an integer n (1 ≤ n ≤ 10^5). The second line contains n integers.",
    "Each test contains multiple test cases. The edges are given in any order.",
    "The only line contains a string s of lowercase letters.",
    "The first line contains t, the number of test cases; each has two integers a and b.",
)
_OUTPUTS = (
    "In the first line print one integer k.",
    "For each test case, print the {thing} on a line of its own.",
    "If it is impossible, print -1.",
    'Print "NO" if there is no {thing}.',
)


def statements(seed: int, number: int) -> Iterator[Statement]:
    chosen = random.Random(seed)
    for _ in range(number):
        thing, things = chosen.choice(_THINGS)
        many = chosen.random() < 0.5
        closing = chosen.choice(_MANY_CLOSINGS if many else _ONE_CLOSINGS)
        parts = [chosen.choice(_STORIES), "Input", chosen.choice(_INPUTS), "Output"]
        rest = [chosen.choice(_OUTPUTS), closing]
        text = "\n\n".join([*parts, " ".join(rest)])
        yield Statement(text.format(thing=thing, things=things), many)
