"""Settings of OpenSearch that cannot work end an index server before it serves anything."""

from pathlib import Path

import pytest

from support.processes.commands import usher


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "The OpenSearch engine needs --engine-url."),
        ("ftp://search:9200", "'ftp://search:9200' is not the URL of an OpenSearch node."),
        ("https://user:secret@search:9200", "The URL of OpenSearch must not contain a password."),
    ],
)
def test_a_wrong_url_is_the_only_message(tmp_path: Path, url: str, reason: str) -> None:
    words = ("--bind", "127.0.0.1:0", "--row", "1", "--engine", "opensearch", "--engine-url", url)
    ended = usher("--data", tmp_path / "data", "index-server", *words, cwd=tmp_path)
    first, hint = ended.err.splitlines()
    assert (ended.code, first) == (2, f"usher: {reason}")
    assert hint.startswith("  → ")
    assert "secret" not in ended.err
