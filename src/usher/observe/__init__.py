"""What `usher status`, `usher explain` and `usher doctor` show: stages, blockers, one URL, the installation."""
