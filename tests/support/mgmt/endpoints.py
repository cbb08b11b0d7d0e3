"""Every endpoint that `usher mgmt` serves, as it is described, without a server."""

from contextlib import AsyncExitStack

from usher.api.openapi import with_document
from usher.api.server import OWN_ENDPOINTS
from usher.console.endpoints import ConsoleEndpoints
from usher.feeds.pages.databases import LazyDatabases
from usher.feeds.pages.endpoints import FeedEndpoints
from usher.settings import LoadedSettings, Settings

FEEDS = FeedEndpoints(LazyDatabases(Settings(), AsyncExitStack())).endpoints()
CONSOLE = ConsoleEndpoints(LoadedSettings(Settings(), {}, None, {})).endpoints()
ENDPOINTS = with_document((*OWN_ENDPOINTS, *CONSOLE, *FEEDS))
