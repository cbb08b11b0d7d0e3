"""The front-end: sends queries to the index servers, merges their hits and serves the search page and its API."""
