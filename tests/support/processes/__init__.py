"""Code that several tests share: processes."""
