"""Inputs of tests, and changes of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.data.certify.inputs import generated_inputs, inputs_of, text_of
from shared.schemas import HumanEvalTests, MbppTests, StdioTests


def test_inputs_of_every_kind_of_tests():
    check = "def check(candidate):\n    assert candidate([1, 2], x=1) == 3\n    assert candidate("
    for tests, name, inputs in (
        (StdioTests(inputs=["3 a\n1.5\n"], outputs=["1"]), "", [[[3, "a"], [1.5], [""]]]),
        (StdioTests(inputs=['[true]\n"x"'], outputs=["1"], fn_name="f"), "f", [([True], "x")]),
        (HumanEvalTests(test=f"{check}(-1, 'b')) == 2\n", entry_point="f"), "f", [((-1, "b"),)]),
        (MbppTests(test_list=["assert set(f({1}, y)) == g(2)", "assert f(2)"]), "f", [(2,)]),
        (MbppTests(test_list=[f"assert f({'-' * 9999}1)", "assert f(2)"]), "f", [(2,)]),
    ):
        assert inputs_of(tests, name) == inputs


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=3, max_size=5, unique_by=tuple))
def test_new_inputs_keep_what_all_inputs_have(lists):
    known = [(len(value), sorted(value), "ab") for value in lists]
    inputs = generated_inputs(known, count=20, seed="0")
    assert inputs == generated_inputs(known, count=20, seed="0")
    assert len(inputs) == len({repr(value) for value in inputs})
    for count, items, word in inputs:
        assert count == len(items)
        assert all(item >= 0 for item in items)
        assert word.islower() or not word
        assert (count, items, word) not in known


def test_standard_input_keeps_its_shape_and_ranges():
    texts = ["3\n1 5 9\n", "2\n4 4\n", "4\n1 2 3 4\n"]
    known = inputs_of(StdioTests(inputs=texts, outputs=["", "", ""]), "")
    assert [text_of(one) for one in known] == texts
    found = [text_of(one) for one in generated_inputs(known, count=20, seed="0")]
    assert len(found) > 10
    for text in found:
        first, second, end = text.split("\n")
        assert end == ""
        assert int(first) == len(second.split())
        assert all(1 <= int(word) <= 9 for word in second.split())


def test_numbers_that_no_float_holds():
    known = inputs_of(StdioTests(inputs=[f"{10**400} 1.5\n", "2 0.5\n"], outputs=["", ""]), "")
    assert generated_inputs(known, count=50, seed="0")
    assert generated_inputs([(10**400, 2.5, float("nan"))], count=50, seed="0")


@pytest.mark.parametrize("known", [[], [()], [("x" * 5000,)]])
def test_nothing_to_change(known):
    assert generated_inputs(known, count=5, seed="0") == []
