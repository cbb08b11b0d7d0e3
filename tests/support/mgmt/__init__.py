"""Code that several tests share: mgmt."""
