"""Names that the code of a text defines."""

from services.data.tokens import PLACEHOLDER, own_names, without_names

CODE = '''\
class Shelf:
    """Where the books of Shelf stand."""

    def put(self, book: list, *others, room=len("x")):
        total, rest = divmod(room, 2)
        self.books = [item for item in others if item]
'''


def test_functions_classes_parameters_and_variables_are_names():
    bound = {"Shelf", "put", "self", "book", "others", "room", "total", "rest", "item"}
    assert own_names(CODE) == bound


def test_names_are_found_wherever_the_code_stands():
    for text in (
        "\n".join(f"    {line}" for line in CODE.split("\n")),
        CODE.replace("\n", "\r\n"),
        f"Correct this:\n\n```python\n{CODE}```\n\nThank you.",
    ):
        assert own_names(text) == own_names(CODE), text


def test_builtins_and_attributes_are_nobodys_names():
    tests = "Mind this:\nassert sorted(pick(a.find(2))) == [1]\n>>> len(drop([]))\n"
    assert own_names(tests) == {"pick", "drop"}


def test_code_that_does_not_parse_still_has_its_definitions():
    assert own_names("def pick(a, b):\n    print 'Python 2'\nclass Old: pass") == {"pick", "Old"}


def test_names_are_replaced_in_prose_as_well():
    assert without_names('def f(x):\n    """Double x; fx stays."""') == (
        f'def {PLACEHOLDER}({PLACEHOLDER}):\n    """Double {PLACEHOLDER}; fx stays."""'
    )


def test_prose_has_no_names():
    for text in ("", "Print the sum of n numbers.", "x = 1", "assert 1 == 1"):
        assert without_names(text) is None, text
