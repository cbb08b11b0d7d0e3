"""The index: builders turn crawled chunks into index chunks, index servers load them and answer searches."""
