"""Feeds: subscribes to them, polls each at its own pace and stores every item once.

`poll` fetches feeds and schedules the next poll. `parse` turns any dialect into a `model.Feed`. `store` saves feeds and
items. `items` processes items after a poll. `websub` subscribes at hubs. `pages` serves web pages through MGMT.
"""
