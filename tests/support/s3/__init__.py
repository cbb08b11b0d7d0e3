"""Code that several tests share: a real S3 server, and a proxy in front of it that injects faults."""
