"""MGMT's HTTP API: JSON in and out, every error as problem+json, described by /v1/openapi.json.

`server` runs it; `app` adds MGMT's access check to the router. Each other module has the endpoints of one topic.
"""
