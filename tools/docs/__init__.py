"""Generators of docs pages and images, and hooks for the docs site (`make docs`)."""
