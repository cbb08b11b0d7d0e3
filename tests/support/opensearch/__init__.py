"""A real OpenSearch for tests: the processes of its nodes, and fixtures."""
