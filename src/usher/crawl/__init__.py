"""The crawler: fetches the pages of chunks, writes them to WARC files and reports results and links to MGMT."""
