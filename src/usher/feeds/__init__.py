"""Keeps feeds: reads them at their own pace, and never loses, doubles or drifts an item.

Comes in: the bytes of a feed and what the server said about them, lists of feeds (OPML), pages that may offer a feed.
Goes out: `values.Feed` with its items, or `values.NotAFeed` with the reason; the time of the next poll. Central names:
`parse.parse` (any dialect to one shape), `pace.after` (when to come again), `opml.read` and `opml.write`,
`discover.candidates`.
"""
