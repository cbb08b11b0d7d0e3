"""The operator console of MGMT: pages, forms and actions, rendered on the server."""
