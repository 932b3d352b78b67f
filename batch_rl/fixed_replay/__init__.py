"""Offline agents."""
