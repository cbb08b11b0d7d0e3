"""Host rules: how they are stored, and which machines they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.errors import BadInput
from usher.queue.host_rules import may_run, normalize_host_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", ""),
        ("  ", ""),
        ("Crawl-1", "crawl-1"),
        (" db.example.com\n", "db.example.com"),
        ("allow", "allow"),
        ("allow:a", "allow:a"),
        ("ALLOW: b, A ,b", "allow:a,b"),
        ("deny : x", "deny:x"),
    ],
)
def test_host_rules_are_kept_in_one_form(text: str, rule: str) -> None:
    assert normalize_host_rule(text) == rule == normalize_host_rule(rule)


@pytest.mark.parametrize(
    "text",
    ["a,b", "allow:", "deny:,", "allow:a,,b", "allow:a b", "a b", "only:a", "allow:deny:a", ":", "a:", "é", "a\0",
     "x" * 1001, "allow:" + "a," * 600 + "a", "'; drop", "*"],
)  # fmt: skip
def test_rules_that_name_no_machine(text: str) -> None:
    with pytest.raises(BadInput, match="does not say which machines") as caught:
        normalize_host_rule(text)
    assert "allow:one,other" in caught.value.hint


@given(st.text() | st.from_regex(r"(?i)(allow|deny)?:?[a-z, .]{0,9}", fullmatch=True))
def test_any_text_is_a_host_rule_or_bad_input(text: str) -> None:
    try:
        rule = normalize_host_rule(text)
    except BadInput:
        return
    assert rule == rule.lower() == normalize_host_rule(rule)
    assert not any(char.isspace() for char in rule)
    assert rule not in {"allow:", "deny:"}


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("", "a b allow"),
        ("a", "a"),
        ("allow", "allow"),
        ("allow:a", "a"),
        ("allow:a,b", "a b"),
        ("deny:a", "b allow"),
        ("deny:a,b", "allow"),
        ("deny:x", "a b allow"),
        ("a,b", ""),
        ("other:a", ""),
        ("allow:", ""),
    ],
)
def test_which_machines_may_run(rule: str, allowed: str) -> None:
    assert [host for host in ("a", "b", "allow") if may_run(rule, host)] == allowed.split()
    assert not may_run("allow:", "")
    assert may_run("deny:", "")
