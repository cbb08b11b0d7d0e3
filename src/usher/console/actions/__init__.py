"""What an operator can do in the console: each action has a form, an equivalent command line and an audit event."""
