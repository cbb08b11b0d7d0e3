"""Content chunks as WARC files: writer and reader."""
