"""HTTP/1.1 as all of our processes speak it: servers, clients, and RPC connections between them."""
