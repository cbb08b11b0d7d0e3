"""Every setting with its type, default and help. `USHER_*` overrides `usher.toml`, which overrides the default."""

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

# Variables of other programs; our own variables override them.
ALIASES = {"database_url": "DATABASE_URL"}
# USHER_* variables that are not settings: the path of the file, the name by which the user called the launcher of a
# checkout, and what a manager passes to its jobs.
NOT_SETTINGS = {
    "USHER_CONFIG",
    "USHER_COMMAND",
    "USHER_JOB_ID",
    "USHER_JOB_TYPE",
    "USHER_ATTEMPT",
    "USHER_CLAIM",
    "USHER_TASK_ID",
    "USHER_TASK_DATA",
}
TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def default_data() -> Path:
    """Return the default data directory; as root not the home, which its PostgreSQL account cannot read."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return Path("/var/lib/usher")
    return Path(platformdirs.user_data_dir("usher"))


def setting(
    default: Any,
    text: str,
    *,
    secret: bool = False,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    allow_infinity: bool = False,
) -> Any:
    about = {
        "help": text,
        "secret": secret,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "allow_infinity": allow_infinity,
    }
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
        "PostgreSQL for jobs, as they connect to it; by default the control area as usher_worker",
        secret=True,
    )
    search_url: str = setting("", "PostgreSQL for feeds and query statistics", secret=True)
    pg_bin: str = setting("", "directory of PostgreSQL programs to embed instead of the wheel's")
    pg_port: int = setting(
        0, "loopback TCP port of the embedded PostgreSQL; 0 = none", minimum=0, maximum=65535
    )
    pool_size: int = setting(8, "maximum of database connections per process", minimum=1)
    connect_timeout: float = setting(
        10.0, "seconds to retry the first database connection", minimum=0
    )
    job_lease: float = setting(60.0, "lease of a run in seconds", minimum=3, maximum=3600)
    chunk_pages: int = setting(5, "pages per chunk", minimum=1, maximum=1000)
    chunk_wait: float = setting(
        1.0,
        "seconds until a crawler gets a chunk with fewer pages; inf: never",
        minimum=0,
        allow_infinity=True,
    )
    chunk_lease: float = setting(300.0, "lease of a chunk in seconds", minimum=1, maximum=86400)
    mgmt_url: str = setting("http://127.0.0.1:8411", "URL of MGMT, for every component")
    token: str = setting("", "token of a component for MGMT", secret=True)
    open_loopback: bool = setting(
        True,  # noqa: FBT003 - a default
        "an MGMT on loopback requires no token from components; set to false if others share the machine",
    )
    offline_grace: float = setting(
        43_200.0,
        "seconds that components accept known tickets while MGMT is unreachable",
        minimum=0,
        maximum=604_800,
    )
    event_days: float = setting(
        90.0, "days to keep events of components and chunks", minimum=1, maximum=36_500
    )
    query_days: float = setting(
        30.0,
        "days to keep single queries; older ones are aggregated by day",
        minimum=1,
        maximum=36_500,
    )
    chunk_store: str = setting(
        "",
        "object store for chunk files: s3://bucket/prefix; empty: on the disks of the components",
    )
    s3_endpoint: str = setting("", "URL of the S3 server; by default AWS_ENDPOINT_URL, else AWS")
    s3_region: str = setting("", "region of S3; by default AWS_REGION")
    s3_access_key: str = setting("", "access key of S3; by default AWS_ACCESS_KEY_ID", secret=True)
    s3_secret_key: str = setting(
        "", "secret key of S3; by default AWS_SECRET_ACCESS_KEY", secret=True
    )
    s3_ca: str = setting(
        "", "file with the certificate of the authority that the S3 server uses, for every process"
    )
    contact: str = setting("", "address or web page of the operator; part of the User-Agent")
    allow_private: str = setting("", "private hosts, addresses and networks that may be crawled")
    fetch_seconds: float = setting(60.0, "maximum seconds to fetch a page", minimum=1, maximum=600)
    fetch_bytes: int = setting(
        10_000_000,
        "maximum bytes of a page; the rest is not read",
        minimum=1_000,
        maximum=100_000_000,
    )
    websub_url: str = setting(
        "", "public URL at which hubs reach /websub/ of MGMT; empty: no subscriptions"
    )
    engine: str = setting(
        "tantivy",
        "where an index server holds its index: tantivy (its own directory) or opensearch (a cluster)",
        choices=("tantivy", "opensearch"),
    )
    engine_url: str = setting(
        "", "URLs of the nodes of the OpenSearch cluster, with commas between them"
    )
    engine_credential: str = setting("", "user:password or API key for OpenSearch", secret=True)
    engine_ca: str = setting("", "file with the certificate of the authority that OpenSearch uses")
    engine_shards: int = setting(
        3, "primary shards of a new index in OpenSearch", minimum=1, maximum=1024
    )
    engine_replicas: int = setting(
        1, "copies of each shard of a new index in OpenSearch", minimum=0, maximum=20
    )
    engine_index: str = setting(
        "usher", "name of the index in OpenSearch; each row in a cluster needs its own"
    )
    log_level: str = setting(
        "info",
        "minimum level of log lines; one-shot commands log only warnings by default",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "auto",
        "format of log lines; auto: text on a terminal, else JSON",
        choices=("auto", "text", "json"),
    )
    log_file: str = setting("", "file for the log lines of a service instead of stderr")
    log_bytes: int = setting(20_000_000, "bytes of a log file until it is rotated", minimum=10_000)
    log_files: int = setting(
        5, "log files of a process, with the rotated ones", minimum=1, maximum=1000
    )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting with its value and origin, as `usher settings` shows it."""

    name: str
    value: str
    origin: str
    help: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, the origin of each, and the worker tables of the file."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None
    workers: Mapping[str, Mapping[str, Any]]

    def rows(self) -> Iterator[SettingRow]:
        for field in dataclasses.fields(Settings):
            value = str(getattr(self.settings, field.name))
            if field.metadata["secret"]:
                value = mask_secret(field.name, value)
            yield SettingRow(field.name, value, self.origins[field.name], field.metadata["help"])


def load(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Read all sources, the strongest last; raise BadSetting for an invalid value."""
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
    if path := environment.get("USHER_CONFIG"):
        return Path(path)
    directories = (Path(), Path(platformdirs.user_config_dir("usher")), Path("/etc/usher"))
    return next((file for folder in directories if (file := folder / "usher.toml").is_file()), None)


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"{file} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} is not valid TOML: {error}.") from error


def worker_tables(value: Any, file: str) -> dict[str, dict[str, Any]]:
    """Return the tables of the job types, which the queue parses."""
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise BadSetting(
            f"worker in {file} must be tables, one for each type of job.",
            hint="For example [worker.defaults] or [worker.fetch].",
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
    variables = {f"USHER_{name.upper()}": name for name in setting_names()}
    files = {f"USHER_{name.upper()}_FILE": name for name in secret_names()}
    for variable, value in environment.items():
        if variable in files and environment.get(variable.removesuffix("_FILE")):
            raise BadSetting(
                f"{variable} and {variable.removesuffix('_FILE')} are both set; remove one of them."
            )
        if not value and variable in {*variables, *files}:
            continue  # an empty variable is not set
        if variable in variables:
            yield variable, variables[variable], value
        elif variable in files:
            yield variable, files[variable], read_secret_file(variable, value)
        elif variable.startswith("USHER_") and variable not in NOT_SETTINGS:
            raise unknown_setting(variable, [*variables, *files, *NOT_SETTINGS], "the environment")


def secret_names() -> list[str]:
    return [field.name for field in dataclasses.fields(Settings) if field.metadata["secret"]]


def read_secret_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadSetting(
            f"{variable} names {path}, which cannot be read: {error.strerror}."
        ) from error


def unknown_setting(name: str, names: list[str], where: str) -> BadSetting:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "Run `usher settings` to list all settings."
    return BadSetting(f"{name} in {where} is not a setting of Usher.", hint=hint)


def convert(name: str, value: Any, origin: str) -> Any:
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    wanted = get_type_hints(Settings)[name]
    if field.metadata["allow_infinity"] and str(value).lower() == "inf":
        return math.inf
    try:
        result = CONVERTERS[wanted](value)
    except (ValueError, TypeError) as error:
        raise BadSetting(
            f"{name} cannot be {value!r} (from {origin}): {error}.",
            hint=f"{name}: {field.metadata['help']}.",
        ) from error
    choices, minimum, maximum = (
        field.metadata[limit] for limit in ("choices", "minimum", "maximum")
    )
    if choices and result not in choices:
        raise BadSetting(
            f"{name} cannot be {value!r} (from {origin}).", hint=f"One of: {', '.join(choices)}."
        )
    limit = ""
    if minimum is not None and result < minimum:
        limit = f"at least {minimum:g}"
    elif maximum is not None and result > maximum:
        limit = f"at most {maximum:g}"
    if limit:
        raise BadSetting(f"{name} cannot be {value!r} (from {origin}): it must be {limit}.")
    return result


def to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value


def to_int(value: Any) -> int:
    if isinstance(value, bool | float) or (
        isinstance(value, str) and not re.fullmatch(r"-?\d+", value)
    ):
        raise ValueError("expected a whole number")
    return int(value)


def to_float(value: Any) -> float:
    try:
        number = float(value)
    except (ValueError, TypeError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("expected a number")
    return number


def to_bool(value: Any) -> bool:
    word = str(value).lower()
    if word not in TRUE | FALSE:
        raise ValueError("expected true or false")
    return word in TRUE


def to_path(value: Any) -> Path:
    return Path(value if isinstance(value, Path) else to_text(value)).expanduser()


CONVERTERS = {str: to_text, int: to_int, float: to_float, bool: to_bool, Path: to_path}


def mask_secret(name: str, value: str) -> str:
    """Return the value of a secret setting without what is secret; an address without a password stays as it is."""
    return mask_password(value) if name.endswith("_url") else value and "***"


def mask_password(dsn: str) -> str:
    """Return a DSN without its password, in both forms of libpq."""
    hidden = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", dsn, flags=re.DOTALL)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", hidden)
