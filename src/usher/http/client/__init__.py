"""HTTP clients of our own components: a connection pool and the download of chunk files."""
