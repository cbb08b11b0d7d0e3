"""A database.conf beside the tables, as Ssscrape has it."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from usher.db.areas import SCHEMA_DIRECTORY, SCHEMAS, Area, from_conf
from usher.errors import BadSetting


def conf(directory: Path, schema: str, text: str) -> None:
    (directory / schema).mkdir()
    (directory / schema / "database.conf").write_text(text)


@pytest.mark.seed("002.3")
def test_a_conf_names_the_database_of_its_area(tmp_path: Path) -> None:
    conf(
        tmp_path,
        "control",
        "hostname = db\nport=5433\ndatabase: q\nusername='u'\npassword = a%b # no\n",
    )
    found = conninfo_to_dict(from_conf(Area.CONTROL, tmp_path))
    assert found == {
        "host": "db",
        "port": "5433",
        "dbname": "q",
        "user": "u",
        "password": "a%b # no",
    }
    assert from_conf(Area.WORK, tmp_path) == ""


@pytest.mark.seed("002.4")
def test_two_directories_may_share_a_conf(tmp_path: Path) -> None:
    conf(tmp_path, "control", "hostname = db\n")
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds" / "database.conf").symlink_to(tmp_path / "control" / "database.conf")
    assert from_conf(Area.SEARCH, tmp_path) == from_conf(Area.CONTROL, tmp_path) == "host=db"


def test_sections_and_empty_lines_are_let_pass(tmp_path: Path) -> None:
    conf(tmp_path, "feeds", "# mine\n\n[database]\nhostname = db\npassword =\n")
    assert conninfo_to_dict(from_conf(Area.SEARCH, tmp_path)) == {"host": "db"}


@pytest.mark.parametrize("text", ["hostnam = db", "just words", "\xff"])
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "database.conf").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadSetting, match=r"database\.conf"):
        from_conf(Area.CONTROL, tmp_path)


@pytest.mark.seed("002.1", "002.3")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_has_a_sample_that_can_be_read(schema: str, tmp_path: Path) -> None:
    sample = (SCHEMA_DIRECTORY / schema / "database.conf-sample").read_text()
    conf(tmp_path, schema, sample)
    assert conninfo_to_dict(from_conf(SCHEMAS[schema], tmp_path))["host"] == "db.example.com"
