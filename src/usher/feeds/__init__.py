"""Keeps feeds: reads them at their own pace, and never loses, doubles or drifts an item.

Comes in: jobs that poll a feed, the bytes of a feed and what the server said about them, lists of feeds (OPML), pages
that may offer a feed. Goes out: rows of the schema `feeds`, the clock of each feed's task, links to the door.
Central names: `poll.poll` (one poll), `parse.parse` (any dialect to one shape), `identity.sort` (which item is which),
`store.save`, `pace.after` (when to come again), `subscriptions`, `opml.read` and `opml.write`, `discover.candidates`;
`hub_asking.tend` and `hub_calls` (WebSub); `endpoints.annex` (pages, data and Atom, which MGMT serves).
"""
