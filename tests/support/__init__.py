"""Code that several tests share: support."""
