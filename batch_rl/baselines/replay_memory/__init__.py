"""The replay memory that logs."""
