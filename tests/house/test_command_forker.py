"""A command of the tests runs in the network namespace of the test that calls it."""

from contextlib import closing
from tempfile import TemporaryFile

from support.processes.command_forker import Nursery
from support.processes.commands import clean
from support.processes.namespaces import in_namespace, needs_root
from support.site.hostile import EVERYTHING
from support.site.website import Website


def fetch_code(nursery: Nursery) -> int:
    """Return the exit code of `usher fetch` for a page of a site in the caller's network."""
    with (
        Website(EVERYTHING) as site,
        TemporaryFile() as in_,
        TemporaryFile() as out,
        TemporaryFile() as err,
    ):
        words = ["fetch", site.url("/about")]
        environment = clean({"USHER_ALLOW_PRIVATE": "127.0.0.1"})
        return nursery.run(words, environment, None, [file.fileno() for file in (in_, out, err)])


@needs_root
def test_a_forker_that_starts_in_a_namespace_serves_both_sides() -> None:
    """The first command of a test process may run inside a namespace and later ones outside."""

    def start() -> tuple[Nursery, int]:
        nursery = Nursery()
        return nursery, fetch_code(nursery)

    nursery, inside = in_namespace(start)
    with closing(nursery):
        assert (inside, fetch_code(nursery)) == (0, 0)
