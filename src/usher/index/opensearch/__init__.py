"""An engine in an OpenSearch cluster: the whole cluster is one index server of a row."""
