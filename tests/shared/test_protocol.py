from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from shared.config import Config, load_config
from shared.protocol import (
    InProtocol,
    Leaf,
    Operation,
    Protocol,
    Recorded,
    Section,
    leaves,
    values,
)

# What a data set of its own may have judged otherwise is a mapping of sections.
CONFIG = load_config(None, ["judge.datasets.d.max_timeouts=3"])
LEAVES = list(leaves(Config))


def changed(section: Section, path: list[str], value: Any) -> Any:
    """The section with one leaf changed, unvalidated: what counts is that it differs."""
    name, *rest = path
    if not rest:
        return section.model_copy(update={name: value})
    part = getattr(section, name)
    if rest[0] == "*":
        new: Any = {key: changed(one, rest[1:], value) for key, one in part.items()}
    else:
        new = changed(part, rest, value)
    return section.model_copy(update={name: new})


def value_of(leaf: Leaf) -> st.SearchStrategy[Any]:
    """Any value of the leaf's type; its limits do not matter here."""
    if leaf.path == "qa_logs.quotas":
        return st.just({})
    option = st.none() | st.booleans() | st.integers() | st.text()
    if leaf.path.endswith(("verl_keys", "extra_body", "apply_chat_template_kwargs")):
        return st.dictionaries(st.text(), option)
    if leaf.path.endswith("engine_kwargs"):
        return st.dictionaries(st.text(), st.dictionaries(st.text(), option))
    return st.from_type(leaf.info.annotation).filter(lambda value: value == value)


def flat(config: Config) -> dict[str, Any]:
    return values(config, lambda _leaf: True)


VALUES = flat(CONFIG)
PROTOCOL = CONFIG.protocol()


@settings(max_examples=2)
@given(data=st.data())
def check_role(leaf: Leaf, data: st.DataObject) -> None:
    value = data.draw(value_of(leaf))
    other = changed(CONFIG, leaf.path.split("."), value)
    if flat(other) == VALUES:
        return  # the value that was there
    protocol = other.protocol()
    same = protocol.fingerprint == PROTOCOL.fingerprint
    assert same is (not leaf.role.identifies)
    differing = [each.path for each in PROTOCOL.diff(protocol)]
    assert bool(differing) is not same
    assert all(path.split(".")[0] == leaf.path.split(".")[0] for path in differing)


def test_a_leafs_change_alters_the_fingerprint_exactly_if_its_role_is_protocol() -> None:
    wrong = {}
    for leaf in LEAVES:
        try:
            check_role(leaf)
        except AssertionError as error:
            wrong[leaf.path] = error
    assert wrong == {}


def test_a_leaf_without_a_role_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Own\.batch: a configuration leaf without a role"):

        class Own(Section):
            name: Recorded[str] = ""
            batch: int = 1


class Small(Section):
    number: InProtocol[int | None] = None
    texts: InProtocol[dict[str, Any]] = Field(default_factory=dict)
    place: Operation[str] = ""


def test_two_mappings_never_have_the_same_leaves() -> None:
    one, two = Small(texts={"a.b": 1}), Small(texts={"a": {"b": 1}})
    assert Protocol.of(one).fingerprint != Protocol.of(two).fingerprint
    assert Protocol.of(one).leaves == {'texts."a.b"': 1}


def test_what_is_not_set_is_not_part_of_the_protocol() -> None:
    """So a later version's new optional leaf leaves earlier fingerprints as they are."""
    assert Protocol.of(Small(place="x")).leaves == {}
    assert Protocol.of(Small(texts={"a": None})).leaves == {"texts.a": None}


def test_differences_name_leaf_and_both_values() -> None:
    differences = Protocol.of(Small(number=1)).diff(Protocol.of(Small(texts={"t": "x" * 200})))
    assert [str(each) for each in differences] == [
        "number (1 there, not set here)",
        f'texts.t (not set there, "{"x" * 58}… here)',
    ]
