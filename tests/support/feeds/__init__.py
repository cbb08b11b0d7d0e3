"""Code that several tests share: feeds."""
