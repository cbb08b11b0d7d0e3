"""Every endpoint that `usher mgmt` serves, as it is described, without a server."""

from contextlib import AsyncExitStack

from usher.feeds.endpoints import Desk
from usher.feeds.endpoints_reach import Reach
from usher.settings import Settings
from usher.web.openapi import with_document
from usher.web.server import OWN

FEEDS = Desk(Reach(Settings(), AsyncExitStack())).endpoints()
ENDPOINTS = with_document((*OWN, *FEEDS))
