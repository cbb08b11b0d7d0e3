"""WebSub: subscriptions at hubs, and their callbacks."""
