"""Code that several tests share: site."""
