"""Content chunks as WARC files: written by crawlers, read by index builders."""
