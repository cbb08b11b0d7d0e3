"""Host rules: the machines on which a job may run."""

import re
from typing import Final

from usher.errors import BadInput

MAX_RULE_CHARS: Final = 1000  # a rule is part of an index row, whose size is limited
RULE_HINT: Final = "A machine's name, allow:one,other or deny:one,other; nothing for any machine."
RULE: Final = re.compile("(allow|deny):([a-z0-9_.-]+(?:,[a-z0-9_.-]+)*)|[a-z0-9_.-]+")
SEPARATOR_BLANKS: Final = re.compile(r"\s*([:,])\s*")


def normalize_host_rule(text: str) -> str:
    """Return the rule as the database stores it: lower case, no blanks, names sorted and unique."""
    rule = SEPARATOR_BLANKS.sub(r"\1", text[: MAX_RULE_CHARS + 1].strip().lower())
    if not rule:
        return ""
    match = RULE.fullmatch(rule)
    if match is None or len(text) > MAX_RULE_CHARS:
        raise BadInput(f"{text[:80]!a} does not say which machines.", hint=RULE_HINT)
    kind, names = match.groups()
    return f"{kind}:{','.join(sorted(set(names.split(','))))}" if kind else rule


def may_run(rule: str, host: str) -> bool:
    """Whether a machine may run a job with this rule, as control.may_run decides it."""
    kind, colon, rest = rule.partition(":")
    names = rest.split(",") if rest else []
    match kind + colon:
        case "":
            return True
        case "allow:":
            return host in names
        case "deny:":
            return host not in names
    return host == rule
