"""The porch: what our HTTP servers share, MGMT's and those of the components.

Requests come in, are named, checked and read; what a handler says, or what went wrong, goes out. Central names:
`entry.Porch` around every request, `listen.serving` for a server, `component.component_app` for a component's face.
It knows no database.
"""
