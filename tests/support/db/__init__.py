"""Code that several tests share: db."""
