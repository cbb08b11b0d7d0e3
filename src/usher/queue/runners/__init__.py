"""Runs the programs of jobs: in processes of their own, or inside the manager."""
