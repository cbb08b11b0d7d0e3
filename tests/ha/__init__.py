"""`make ha`: the cluster of docs/high-availability.md in network namespaces; the primary is killed under load."""
