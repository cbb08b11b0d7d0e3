"""Which pages a removal covers: what the operator writes, its canonical form, and the check of a page.

A page is its host and its path, without a scheme: http and https are the same page. `work.is_removed` is the same check
in SQL; a test compares them.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from usher.errors import BadInput
from usher.urls import Url, UrlRefusal, parse

RemovalKind = Literal["page", "prefix", "host", "domain"]
EXAMPLES: Final = (
    "Examples: https://example.com/page, https://example.com/private/, example.com, *.example.com"
)
ANY_SUBDOMAIN: Final = "*."


class RemovalRule(Struct, frozen=True):
    """The pages of a host whose path is one of `paths` or begins with `prefix`; also of its subdomains if so stated."""

    host: str
    subdomains: bool = False
    paths: tuple[str, ...] = ()
    prefix: str | None = None

    def covers_path(self, path: str) -> bool:
        return path in self.paths or (self.prefix is not None and path.startswith(self.prefix))


class RemovalTarget(Struct, frozen=True):
    """What the operator names: `text` is its canonical form, the same for all ways to write it."""

    kind: RemovalKind
    text: str
    rule: RemovalRule


def parse_target(given: str) -> RemovalTarget:
    """Read a URL, a prefix (it ends with `/` or `*`), a host, or `*.` and a domain; BadInput says what is wrong."""
    text = given.strip()
    if text.startswith(ANY_SUBDOMAIN):
        return _domain_target(text.removeprefix(ANY_SUBDOMAIN), given)
    is_prefix = text.endswith(("/", "*"))
    url = _parse(text.removesuffix("*"), given)
    names_path = "/" in text.partition("://")[2] if "://" in text else "/" in text
    if not names_path or (is_prefix and url.path == "/"):
        return RemovalTarget("host", url.host, RemovalRule(url.host, prefix="/"))
    if is_prefix:
        rule = RemovalRule(url.host, paths=_without_slash(url.path), prefix=url.path)
        return RemovalTarget("prefix", f"{url.host}{url.path}*", rule)
    return RemovalTarget(
        "page", f"{url.host}{url.path}", RemovalRule(url.host, paths=_with_slash(url.path))
    )


def page_target(url: Url) -> RemovalTarget | None:
    """The target for this page alone; None if what the operator would write covers more, as for the root of a host."""
    path = url.path if "?" in url.path else url.path.rstrip("/")
    if not path or path.endswith(("/", "*")):
        return None
    return RemovalTarget(
        "page", f"{url.host}{path}", RemovalRule(url.host, paths=_with_slash(path))
    )


def _domain_target(name: str, given: str) -> RemovalTarget:
    url = _parse(name, given)
    if (
        "/" in name
        or ":" in url.host
        or "." not in url.host
        or url.host.rpartition(".")[2].isdigit()
    ):
        raise BadInput(f"{given[:100]!a} is not a domain after the `*.`.", hint=EXAMPLES)
    rule = RemovalRule(url.host, subdomains=True, prefix="/")
    return RemovalTarget("domain", f"{ANY_SUBDOMAIN}{url.host}", rule)


def _parse(text: str, given: str) -> Url:
    if "*" in text:
        raise BadInput(f"{given[:100]!a} has a `*` that is not at its end.", hint=EXAMPLES)
    url = parse(text)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{given[:100]!a} is not a URL or host: {url.detail}", hint=EXAMPLES)
    return url


def _without_slash(path: str) -> tuple[str, ...]:
    """`/private` belongs to `/private/`."""
    return (path[:-1],) if path.endswith("/") and "?" not in path else ()


def _with_slash(path: str) -> tuple[str, ...]:
    """`/page` and `/page/` are the same page on nearly every server."""
    return (path,) if "?" in path else (path, f"{path}/")


def host_and_parents(host: str) -> list[str]:
    """The host, and without its port each domain that it is in."""
    name = host.partition(":")[0]
    names = [host, name]
    while name := name.partition(".")[2]:
        names.append(name)
    return names


class RemovalIndex:
    """Rules by host.

    With 10,000 rules the check of a hit takes 0.3 µs, also if its host has 100 rules; about 1 µs if a rule includes
    subdomains.
    """

    def __init__(self, rules: Iterable[RemovalRule] = ()) -> None:
        self._hosts: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}  # paths and prefixes
        self._domains: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
        by_host: dict[str, list[RemovalRule]] = {}
        for rule in rules:
            by_host.setdefault(rule.host, []).append(rule)
        for host, its_rules in by_host.items():
            self._hosts[host] = _combined(its_rules)
            if wide := [rule for rule in its_rules if rule.subdomains]:
                self._domains[host] = _combined(wide)

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def covers(self, host: str, path: str) -> bool:
        """Whether the operator removed this page."""
        if (rules := self._hosts.get(host)) and (path in rules[0] or path.startswith(rules[1])):
            return True
        return bool(self._domains) and self._domain_covers(host, path)

    def _domain_covers(self, host: str, path: str) -> bool:
        for name in host_and_parents(host):
            rules = self._domains.get(name)
            if rules and (path in rules[0] or path.startswith(rules[1])):
                return True
        return False


def _combined(rules: Sequence[RemovalRule]) -> tuple[frozenset[str], tuple[str, ...]]:
    """All paths and all prefixes of some rules."""
    paths = frozenset(path for rule in rules for path in rule.paths)
    return paths, tuple(rule.prefix for rule in rules if rule.prefix is not None)
