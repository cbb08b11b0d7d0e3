"""What a component shows to MGMT, and what it demands of those who ask it, by its settings."""

from usher.http.server.component import GuardOptions
from usher.local_secret import component_credential
from usher.settings import Settings


def credential(settings: Settings) -> str:
    """The component's token; beside an MGMT on this machine, what the data directory's secret proves."""
    return component_credential(settings.token, settings.data, settings.mgmt_url)


def guard_options(settings: Settings, host: str, *, insecure: bool) -> GuardOptions:
    """How the component tells who may ask it; `host` is where others reach it, if not where it listens."""
    return GuardOptions(
        mgmt=settings.mgmt_url,
        token=settings.token,
        host=host,
        insecure=insecure,
        grace_seconds=settings.offline_grace,
    )
