"""The crawler's HTTP client, which talks to servers that it does not trust."""
