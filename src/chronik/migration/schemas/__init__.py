"""Export of a schema registry to a file or into another registry, with ids and versions kept."""
