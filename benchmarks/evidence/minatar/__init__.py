"""Offline agents on the experience of online DQNs, in MinAtar."""
