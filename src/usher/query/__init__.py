"""What index servers and front-ends share: the query language, tokens, and the messages between them."""
