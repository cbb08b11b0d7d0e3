"""Lists and details of the console: each reads a bounded number of rows, and the next ones by the last key."""
