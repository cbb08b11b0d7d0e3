"""What a component shows to MGMT, and how it verifies its own callers, by its settings."""

from usher.http.server.component import GuardOptions
from usher.local_secret import component_credential
from usher.settings import Settings


def credential(settings: Settings) -> str:
    """The component's token; for an MGMT on this machine, a proof by the data directory's secret."""
    return component_credential(settings.token, settings.data, settings.mgmt_url)


def guard_options(settings: Settings, host: str, *, insecure: bool) -> GuardOptions:
    """How the component verifies its callers; `host` is its public address, if not where it listens."""
    return GuardOptions(
        mgmt=settings.mgmt_url,
        token=settings.token,
        host=host,
        insecure=insecure,
        grace_seconds=settings.offline_grace,
    )
