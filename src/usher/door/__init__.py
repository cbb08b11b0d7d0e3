"""Decides which URLs may come in, and when.

Comes in: URLs that knock, and what fetches brought. Goes out: a verdict with a reason for each, and rows of the
guestbook that wait to be crawled: being admitted is being queued. Central names: `doorkeeper.Doorkeeper`,
`rules.judge` (the decision table), `guestbook.knock` (the same as one statement), `hosts.register` (numbers), `desk`
(what operators do), `census.Census` (how many pages hosts have).
"""
