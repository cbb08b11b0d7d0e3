"""Pure functions of the console: buttons for commands, paths that stay on the server, forms."""

import pytest

from usher.console.actions.registry import ACTIONS, COMMAND_ACTIONS, link_of_command
from usher.console.forms import local_path, parse_form
from usher.errors import BadInput
from usher.mgmt.console_sessions import form_token, is_form_token


@pytest.mark.parametrize(
    ("command", "href"),
    [
        ("usher hosts open a.example", "/actions/host-open?host=a.example"),
        (
            "usher add --pass 'https://a.example/?q=1'",
            "/actions/page-recrawl?url=https%3A%2F%2Fa.example%2F%3Fq%3D1",
        ),
        ("usher add https://a.example/", "/actions/page-recrawl?url=https%3A%2F%2Fa.example%2F"),
        ("usher remove --undo '*.a.example'", "/actions/removal-undo?target=%2A.a.example"),
        ("usher jobs resume fetch", "/actions/type-resume?type=fetch"),
        ("usher hosts show a.example", "/hosts/a.example"),
        ("usher explain https://a.example/", "/explain?url=https%3A%2F%2Fa.example%2F"),
        ("usher pages errors", "/pages?state=error"),
        (
            "usher jobs log --state permanent-error --since 1h",
            "/jobs?show=log&state=permanent-error",
        ),
        ("usher crawler", None),
        ("usher up", None),
        ("Free some space there.", None),
        ("usher 'unclosed", None),
        ("", None),
    ],
)
def test_advice_becomes_a_link(command: str, href: str | None) -> None:
    link = link_of_command(command)
    assert (link.href if link else None) == href


def test_actions_of_commands_exist() -> None:
    assert set(COMMAND_ACTIONS.values()) <= set(ACTIONS)


@pytest.mark.parametrize("text", ["/", "/pages?state=error", "/explain?url=https://a.example/"])
def test_local_paths_stay(text: str) -> None:
    assert local_path(text) == text


@pytest.mark.parametrize(
    "text", ["", "x", "//a", "/\\a", "https://a", "/a\nb", "/a\\b", "javascript:x"]
)
def test_other_places_become_the_first_screen(text: str) -> None:
    assert local_path(text) == "/"


def test_forms_are_read_or_refused() -> None:
    assert parse_form(b"") == {}
    assert parse_form(b"a=1&b=%C3%BC+x&c=") == {"a": "1", "b": "ü x", "c": ""}
    for body in (b"a=1&a=2", b"a", b"a=%ff", b"\xff", b"&".join(b"f%d=1" % n for n in range(101))):
        with pytest.raises(BadInput):
            parse_form(body)


def test_a_form_token_belongs_to_one_session() -> None:
    token = form_token("secret")
    assert is_form_token("secret", token)
    assert not is_form_token("other", token)
    assert not is_form_token("secret", "")
    assert not is_form_token("secret", "é" * 64)
