"""Web pages about feeds and items, and the endpoints that serve them."""
