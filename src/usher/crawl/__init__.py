"""The crawler: chunks of pages come from MGMT over HTTP; content chunks, links and what became of each page go out.

Central names: `content.Writer` and `reading.entries` for content chunks. It knows MGMT's HTTP API and no database.
"""
