# The types of the public API. A stub, because import-linter counts the imports that type checkers need.
from usher import jobs as jobs
from usher import worker as worker
from usher.http.client.mgmt_client import Client as Client

__version__: str
__all__ = ("Client", "__version__", "jobs", "worker")
