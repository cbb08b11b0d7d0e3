"""The client of S3, obstore, which only installations with an object store need."""

import atexit
import sys
import time
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from usher.errors import BadSetting
from usher.object_store.address import StoreAccess, StoreAddress

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Store

LOCK_FILE: Final = "requirements-s3.lock"  # in a checkout
CONNECT_SECONDS: Final = 5.0
STALL_SECONDS: Final = 60.0  # without a byte of the response
MAX_REQUEST_TIME: Final = timedelta(hours=6)
# obstore's threads release Python objects shortly after a request. If Python ends meanwhile, the process aborts.
EXIT_SECONDS: Final = 0.1
MAX_REQUEST_RETRIES: Final = 1_000  # `patience` ends them earlier


def s3_client(address: StoreAddress, access: StoreAccess, patience: float) -> "S3Store":
    """Return obstore's client; BadSetting if a value is invalid."""
    config: S3Config = {"checksum_algorithm": "SHA256"}
    if access.endpoint:
        config["endpoint"] = access.endpoint
    if access.region:
        config["region"] = access.region
    if access.access_key:
        config |= {"access_key_id": access.access_key, "secret_access_key": access.secret_key}
    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=STALL_SECONDS),
        "timeout": MAX_REQUEST_TIME,
    }
    if access.authorities.ca_file:
        options["root_certificate"] = access.authorities.pem()
    module = import_module("obstore.store")
    try:
        client: S3Store = module.S3Store(
            address.bucket,
            prefix=address.prefix or None,
            config=config,
            client_options=options,
            retry_config={
                "max_retries": MAX_REQUEST_RETRIES,
                "retry_timeout": timedelta(seconds=patience),
                "backoff": {"max_backoff": timedelta(seconds=5)},
            },
        )
    except (ValueError, import_obstore().exceptions.BaseError) as error:
        raise BadSetting(f"The object store {address} cannot be used: {error}.") from error
    return client


@cache
def import_obstore() -> Any:  # noqa: ANN401 - its stubs need a package that is not installed
    """Import the client, which only installations with an object store need."""
    try:
        module = import_module("obstore")
        import_module("obstore.exceptions")
    except ImportError as error:
        raise BadSetting(
            "Object storage needs the package obstore, which is not installed.",
            hint=install_command(Path(__file__).parents[3]),
        ) from error
    atexit.register(time.sleep, EXIT_SECONDS)
    return module


def install_command(root: Path) -> str:
    """Return the command that installs the client beside this Usher; `root` is its checkout, if it runs from one."""
    lock = root / LOCK_FILE
    if lock.exists():
        return f"{sys.executable} -m pip install --require-hashes -r {lock}"
    return f"{sys.executable} -m pip install 'usherd[s3]'"
