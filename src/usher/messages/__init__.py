"""The messages between MGMT and its components, each defined once for both ends, by the component that sends them.

msgspec checks bounds when it decodes, so MGMT enforces them and its client can build any message. Unknown fields are
ignored at both ends, because components in any language may send more. Messages whose fields are types of the door or
the queue are in `usher.api.door_messages` and `usher.api.queue_messages`.
"""
