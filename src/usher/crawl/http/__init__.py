"""The crawler's HTTP/1.1 client: connections, DNS, responses and content codings, within limits."""
