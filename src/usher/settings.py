"""Every setting once: name, type, default, help. `USHER_*` over `usher.toml` over the default.

Comes from the environment, at most one file and the command line; goes, frozen, to whatever starts.
"""

import dataclasses
import difflib
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import platformdirs

from usher.errors import BadSetting

# Names that other programs gave a setting; understood after our own.
ALIASES = {"database_url": "DATABASE_URL"}
# USHER_* names that are no settings: where the file is, and what a manager tells its jobs.
NOT_SETTINGS = {
    "USHER_CONFIG",
    "USHER_JOB_ID",
    "USHER_JOB_TYPE",
    "USHER_ATTEMPT",
    "USHER_CLAIM",
    "USHER_TASK_ID",
    "USHER_TASK_DATA",
}
TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def default_data() -> Path:
    """Where data lives unless told; root's own home is closed to the user its PostgreSQL runs as."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return Path("/var/lib/usher")
    return Path(platformdirs.user_data_dir("usher"))


def setting(
    default: Any,
    text: str,
    *,
    secret: bool = False,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    endless: bool = False,
) -> Any:
    about = {"help": text, "secret": secret, "choices": choices, "least": least, "most": most}
    about["endless"] = endless  # whether "inf" is a value too
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=about)
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: Path = setting(
        default_data, "directory for the embedded PostgreSQL and Usher's own files"
    )
    database_url: str = setting(
        "", "PostgreSQL for all three areas instead of the embedded one", secret=True
    )
    work_url: str = setting("", "PostgreSQL for hosts, guestbook and chunks", secret=True)
    control_url: str = setting("", "PostgreSQL for jobs, tasks and resources", secret=True)
    worker_url: str = setting(
        "",
        "address of the control area that jobs are given; else ours, as usher_worker",
        secret=True,
    )
    search_url: str = setting("", "PostgreSQL for feeds and query statistics", secret=True)
    pg_bin: str = setting("", "directory of PostgreSQL programs to embed instead of the wheel's")
    pg_port: int = setting(
        0, "loopback TCP port of the embedded PostgreSQL; 0 = none", least=0, most=65535
    )
    pool_size: int = setting(8, "database connections one process keeps at most", least=1)
    connect_timeout: float = setting(
        10.0, "seconds to keep trying for a first database connection", least=0
    )
    job_lease: float = setting(
        60.0, "seconds without a sign of life after which a run is taken back", least=3, most=3600
    )
    chunk_pages: int = setting(5, "pages of a chunk", least=1, most=1000)
    chunk_wait: float = setting(
        1.0,
        "seconds until fewer pages than a chunk has are given; inf: never",
        least=0,
        endless=True,
    )
    chunk_lease: float = setting(
        300.0,
        "seconds without a sign of life after which a chunk is taken back",
        least=1,
        most=86400,
    )
    mgmt_url: str = setting("http://127.0.0.1:8411", "address of MGMT, for every component")
    token: str = setting("", "token that a component shows to MGMT", secret=True)
    open_loopback: bool = setting(
        True,  # noqa: FBT003 - a default
        "component endpoints of an MGMT on loopback need no token; false where others share the machine",
    )
    offline_grace: float = setting(
        43_200.0,
        "seconds that components accept the tickets they know while MGMT cannot be reached",
        least=0,
        most=604_800,
    )
    event_days: float = setting(
        90.0, "days that events of components and chunks are kept", least=1, most=36_500
    )
    query_days: float = setting(
        30.0,
        "days that single queries are kept; older ones are summed up by day",
        least=1,
        most=36_500,
    )
    contact: str = setting(
        "", "address or page that says who crawls and why; part of the User-Agent"
    )
    allow_private: str = setting(
        "", "hosts, addresses and networks that may be crawled although they are not public"
    )
    fetch_seconds: float = setting(
        60.0,
        "seconds that a page may take from the first byte asked to the last",
        least=1,
        most=600,
    )
    fetch_bytes: int = setting(
        10_000_000, "bytes that are read of a page at most", least=1_000, most=100_000_000
    )
    websub_url: str = setting(
        "", "public address at which hubs reach /websub/ of MGMT; empty: hubs are not asked"
    )
    log_level: str = setting(
        "info",
        "how much is logged; commands that end log warnings only, unless this is set",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "auto", "log lines: text on a terminal, else JSON", choices=("auto", "text", "json")
    )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as `usher settings` prints it."""

    name: str
    value: str
    origin: str
    help: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and where each came from; the tables of workers as the file has them."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None
    workers: Mapping[str, Mapping[str, Any]]

    def shown(self) -> Iterator[SettingRow]:
        for field in dataclasses.fields(Settings):
            value = str(getattr(self.settings, field.name))
            if field.metadata["secret"]:
                value = mask_password(value) if field.name.endswith("_url") else value and "***"
            yield SettingRow(field.name, value, self.origins[field.name], field.metadata["help"])


def load(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Read every source, the strongest last; what cannot be used is an error here, not later."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(setting_names(), "default")
    file = config or find_file(environment)
    table = read_toml(file) if file else {}
    workers = worker_tables(table.pop("worker", {}), str(file))
    sources = (
        from_file(table, str(file)),
        from_environment(environment),
        (("command line", name, value) for name, value in (overrides or {}).items()),
    )
    for source in sources:
        for origin, name, value in source:
            values[name] = convert(name, value, origin)
            origins[name] = origin
    if file and origins["data"] == str(file):
        values["data"] = file.parent / values["data"]
    return LoadedSettings(Settings(**values), origins, file, workers)


def setting_names() -> list[str]:
    return [field.name for field in dataclasses.fields(Settings)]


def find_file(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get("USHER_CONFIG"):
        return Path(named)
    places = (Path(), Path(platformdirs.user_config_dir("usher")), Path("/etc/usher"))
    return next(
        (place / "usher.toml" for place in places if (place / "usher.toml").is_file()), None
    )


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"{file} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} is not valid TOML: {error}.") from error


def worker_tables(value: Any, file: str) -> dict[str, dict[str, Any]]:
    """One table for each type of job, which the queue reads."""
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise BadSetting(
            f"worker in {file} must be tables, one for each type of job.",
            hint="Such as [worker.defaults] or [worker.fetch].",
        )
    return value


def from_file(table: Mapping[str, Any], file: str) -> Iterator[tuple[str, str, Any]]:
    for name, value in table.items():
        if name not in setting_names():
            raise unknown_setting(name, [*setting_names(), "worker"], file)
        yield file, name, value


def from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    for name, alias in ALIASES.items():
        if environment.get(alias):
            yield alias, name, environment[alias]
    known = {f"USHER_{name.upper()}": name for name in setting_names()}
    files = {f"USHER_{name.upper()}_FILE": name for name in secret_names()}
    for variable, value in environment.items():
        if variable in files and environment.get(variable.removesuffix("_FILE")):
            raise BadSetting(
                f"{variable} and {variable.removesuffix('_FILE')} are both set; one is enough."
            )
        if not value and variable in {*known, *files}:
            continue  # set to nothing is not set
        if variable in known:
            yield variable, known[variable], value
        elif variable in files:
            yield variable, files[variable], read_secret_file(variable, value)
        elif variable.startswith("USHER_") and variable not in NOT_SETTINGS:
            raise unknown_setting(variable, [*known, *files, *NOT_SETTINGS], "the environment")


def secret_names() -> list[str]:
    return [field.name for field in dataclasses.fields(Settings) if field.metadata["secret"]]


def read_secret_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadSetting(
            f"{variable} names {path}, which cannot be read: {error.strerror}."
        ) from error


def unknown_setting(name: str, known: list[str], where: str) -> BadSetting:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "`usher settings` lists all there are."
    return BadSetting(f"{name} in {where} is not a setting of Usher.", hint=hint)


def convert(name: str, value: Any, origin: str) -> Any:
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    wanted = get_type_hints(Settings)[name]
    if field.metadata["endless"] and str(value).lower() == "inf":
        return math.inf
    try:
        result = CONVERTERS[wanted](value)
    except (ValueError, TypeError) as error:
        raise BadSetting(
            f"{name} cannot be {value!r} (from {origin}): {error}.",
            hint=f"{name}: {field.metadata['help']}.",
        ) from error
    choices, least, most = (field.metadata[limit] for limit in ("choices", "least", "most"))
    if choices and result not in choices:
        raise BadSetting(
            f"{name} cannot be {value!r} (from {origin}).", hint=f"One of: {', '.join(choices)}."
        )
    if least is not None and result < least:
        raise BadSetting(f"{name} cannot be {value!r} (from {origin}): it is at least {least:g}.")
    if most is not None and result > most:
        raise BadSetting(f"{name} cannot be {value!r} (from {origin}): it is at most {most:g}.")
    return result


def to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text is wanted")
    return value


def to_int(value: Any) -> int:
    if isinstance(value, bool | float) or (
        isinstance(value, str) and not re.fullmatch(r"-?\d+", value)
    ):
        raise ValueError("a whole number is wanted")
    return int(value)


def to_float(value: Any) -> float:
    try:
        number = float(value)
    except (ValueError, TypeError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a number is wanted")
    return number


def to_bool(value: Any) -> bool:
    word = str(value).lower()
    if word not in TRUE | FALSE:
        raise ValueError("true or false is wanted")
    return word in TRUE


def to_path(value: Any) -> Path:
    return Path(value if isinstance(value, Path) else to_text(value)).expanduser()


CONVERTERS = {str: to_text, int: to_int, float: to_float, bool: to_bool, Path: to_path}


def mask_password(dsn: str) -> str:
    """A DSN without its password, in both of libpq's forms."""
    hidden = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", dsn, flags=re.DOTALL)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", hidden)
