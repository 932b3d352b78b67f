"""Offline training and evaluation."""
