"""Settings: order of sources, validation, unknown names, hidden secrets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.errors import BadSetting
from usher.settings import Settings, load, mask_password, setting_names


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "usher.toml"
    file.write_text(text)
    return file


def test_defaults() -> None:
    loaded = load({})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, 'pool_size = 3\nlog_level = "error"\n')
    loaded = load({"USHER_POOL_SIZE": "5"}, config=file, overrides={"log_format": "json"})
    assert (loaded.settings.pool_size, loaded.origins["pool_size"]) == (5, "USHER_POOL_SIZE")
    assert (loaded.settings.log_level, loaded.origins["log_level"]) == ("error", str(file))
    assert (loaded.settings.log_format, loaded.origins["log_format"]) == ("json", "command line")
    assert loaded.origins["pg_port"] == "default"


def test_set_to_nothing_is_not_set() -> None:
    assert load({"USHER_DATA": "", "USHER_WORK_URL_FILE": ""}) == load({})


def test_the_file_is_found_by_its_variable(tmp_path: Path) -> None:
    file = write(tmp_path, "pool_size = 3\n")
    assert load({"USHER_CONFIG": str(file)}).settings.pool_size == 3


def test_a_relative_data_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'data = "here"\n')
    assert load({}, config=file).settings.data == tmp_path / "here"


def test_our_variable_overrides_that_of_others() -> None:
    both = {"DATABASE_URL": "postgresql://theirs", "USHER_DATABASE_URL": "postgresql://ours"}
    assert load(both).settings.database_url == "postgresql://ours"
    assert load({"DATABASE_URL": "postgresql://theirs"}).origins["database_url"] == "DATABASE_URL"


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("postgresql://me:word@here/db\n")
    loaded = load({"USHER_WORK_URL_FILE": str(tmp_path / "secret")})
    assert loaded.settings.work_url == "postgresql://me:word@here/db"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"USHER_POOL_SZE": "3"}, "USHER_POOL_SZE"),
        ({"USHER_POOL_SIZE": "many"}, "a whole number"),
        ({"USHER_POOL_SIZE": "0"}, "at least 1"),
        ({"USHER_POOL_SIZE": "3.5"}, "a whole number"),
        ({"USHER_PG_PORT": "65536"}, "at most 65535"),
        ({"USHER_CONNECT_TIMEOUT": "nan"}, "a number"),
        ({"USHER_WORK_URL": "x", "USHER_WORK_URL_FILE": "y"}, "both set"),
        ({"USHER_CONNECT_TIMEOUT": "soon"}, "a number"),
        ({"USHER_LOG_LEVEL": "loud"}, "cannot be 'loud'"),
        ({"USHER_WORK_URL_FILE": "/nowhere/at/all"}, "cannot be read"),
        ({"USHER_CONFIG": "/nowhere/at/all.toml"}, "cannot be read"),
    ],
)
def test_bad_variables(environment: dict[str, str], words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        load(environment)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pol_size = 3", "pol_size"),
        ("pool_size = ", "not valid TOML"),
        ("pool_size = true", "a whole number"),
        ('pool_size = "many"', "a whole number"),
        ("data = 3", "expected text"),
        ("[worker]\nx = 1", "worker"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        load({}, config=write(tmp_path, text))


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(BadSetting) as caught:
        load({"USHER_POOL_SZE": "3"})
    assert caught.value.hint == "Did you mean USHER_POOL_SIZE?"


def test_every_setting_is_shown_with_help_and_without_secrets() -> None:
    loaded = load({"DATABASE_URL": "postgresql://me:secret@here/db"})
    shown = list(loaded.rows())
    assert [one.name for one in shown] == setting_names()
    assert all(one.help for one in shown)
    assert not any("secret" in one.value for one in shown)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cr3t@host/db",
        "postgresql://:s3cr3t@host/db",
        "postgres://me:s3cr3t@host:5432,other/db?x=1",
        "host=a password=s3cr3t dbname=b",
        r"host=a password = 's3cr3t \' s3cr3t' dbname=b",
        "postgresql://host/db?user=me&password=s3cr3t",
        "postgresql://me:s3cr3t with blank@host",
        "postgresql://me:s3cr3t@s3cr3t@host/db",
    ],
)
def test_a_password_is_never_shown(dsn: str) -> None:
    assert "s3cr3t" not in mask_password(dsn)
    assert "***" in mask_password(dsn)


@given(st.text())
def test_masking_takes_any_text(text: str) -> None:
    assert isinstance(mask_password(text), str)


def test_a_token_is_not_shown() -> None:
    loaded = load({"USHER_TOKEN": "s3cr3t"})
    [shown] = [shown for shown in loaded.rows() if shown.name == "token"]
    assert shown.value == "***"
