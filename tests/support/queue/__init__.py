"""Code that several tests share: queue."""
