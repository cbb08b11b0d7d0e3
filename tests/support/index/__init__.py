"""Code that several tests share: index."""
