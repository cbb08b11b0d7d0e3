"""The face for programs: HTTP in, JSON out, every error as problem+json.

Comes in: requests to the endpoints of `server.ENDPOINTS`. Goes out: what the rooms below answer.
Nothing is decided here. Central names: `app.Endpoint` (one endpoint, as data), `app.make_app`, `server.serve`.
"""
