"""MGMT: gives chunks to crawlers and builders, places them on index servers, and watches every component."""
