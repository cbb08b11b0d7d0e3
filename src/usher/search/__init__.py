"""Understands what is asked and makes one answer of many.

Comes in: the words that somebody types, and the hits of each index server. Goes out: a `query.Query` that every server
reads the same way, one ranked list without copies, and the page that shows it. Central names: `query.parse`,
`answers.Hit`, `answers.Stats` (what makes scores of different servers comparable), `merge.merge`, `highlight.window`,
`broker.Broker` (asks the rows), `front.front` (the actor).
"""
