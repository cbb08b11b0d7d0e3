"""The names of pages and sections."""

import pytest

from usher.index.section_names import joined_name, page_names, section_heading, section_names


@pytest.mark.parametrize(
    ("anchor", "title", "names"),
    [
        ("open", "open(file, mode='r')", {"open", "=open", "==open"}),
        ("ValueError", "Errors \u203a exception ValueError", {"valueerror", "=valueerror", "==valueerror"}),
        ("func-dict", "class dict(**kwargs)", {"funcdict", "=funcdict", "dict", "=dict", "~class"}),
        ("GUC-CLUSTER-NAME", "cluster_name (string)", {"clustername", "=clustername", "=gucclustername"}),
        ("for-statements", "4.2. for Statements", {"~for"}),
    ],
)  # fmt: skip
def test_a_section_is_named_by_its_heading_and_its_anchor(
    anchor: str, title: str, names: set[str]
) -> None:
    assert set(section_names(anchor, title)) >= names


def test_a_member_has_no_name_of_its_own() -> None:
    names = set(section_names("logging.Handler.close", "Handler \u203a close()"))
    assert "close" in names
    assert not names & {"=close", "==close"}
    assert "=logginghandlerclose" in names


def test_the_parts_of_a_title_are_names() -> None:
    names = set(page_names("pathlib — Object-oriented paths — Python 3.11 documentation"))
    assert {"==pathlib", "=objectorientedpaths"} <= names
    assert "==jsontypes" in set(page_names("Chapter 8. JSON Types"))


def test_spellings_of_a_name_are_equal() -> None:
    assert {joined_name(text) for text in ("f-string", "F string", "fstring")} == {"fstring"}
    assert joined_name("a b c d e f g") == ""


def test_the_heading_of_a_section_is_the_end_of_its_path() -> None:
    assert section_heading("Built-in \u203a Functions \u203a open()") == "open()"
