"""What Usher's HTTP servers share, MGMT's and those of the components; no module here knows a database.

`endpoint` has Endpoint, Call and Router; `middleware` wraps every request; `listen` runs a server; `component` combines
them for a component.
"""
