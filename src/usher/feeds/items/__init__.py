"""Works on items after a poll: search, cleaning, full pages."""
