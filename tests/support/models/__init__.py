"""Code that several tests share: models."""
