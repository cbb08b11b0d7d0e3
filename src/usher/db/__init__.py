"""The way to PostgreSQL: connection pools, named statements, areas, and the embedded server."""
