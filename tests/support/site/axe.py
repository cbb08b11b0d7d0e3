"""axe-core, which finds barriers for people with disabilities in a page; `scripts/corpus` downloads it."""

import tarfile
from pathlib import Path
from typing import Final

import pytest

from support.site.browser import Tab

ARCHIVES: Final = Path(__file__).parents[3] / ".corpus"
PROGRAM: Final = "package/axe.min.js"
# The best practices of axe-core are included: landmarks, the order of headings, names of regions.
RUN: Final = """axe.run(document, {resultTypes: ["violations"]}).then(result =>
  result.violations.map(each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 200)).join(" | ")}`))"""


def read_axe() -> str:
    """The program; skips the test if it is not here."""
    archives = sorted(ARCHIVES.glob("axe-core-*.tgz"))
    if not archives:
        pytest.skip("axe-core is not here: scripts/corpus downloads it with npm")
    with tarfile.open(archives[-1]) as archive:
        file = archive.extractfile(PROGRAM)
        assert file is not None
        return file.read().decode()


def violations(tab: Tab, axe: str) -> list[str]:
    """What axe-core finds on the page that is open."""
    tab.ask(f"{axe}; 0")
    texts: list[str] = tab.ask(RUN)
    return texts
