"""The versions that run now: of the processes that use the database, and of the components that call MGMT."""

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.versions import ComponentGroupVersion, RunningVersions

store = load_statements(__file__)


async def running_versions(conn: Connection) -> RunningVersions:
    """The versions that the database knows of."""
    processes = await store.process_versions.column(conn)
    components = await store.component_versions.rows(conn, ComponentGroupVersion)
    return RunningVersions([version for version in processes if version], components)
