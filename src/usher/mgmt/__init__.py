"""Hands out chunks, seats them in rows of index servers, and watches every component.

Comes in: pages that the door admitted, and what components report. Goes out: leased chunks, placements, the map of
servers, and events. Central names: `seating.quotas` and `seating.moves` (who holds what), `seating.droppable` (what may
go), `health.judge` and `health.due_actions` (who is fit, and what follows if not).
"""
