"""The history of a node: sampling of its metrics, and the stored file."""
