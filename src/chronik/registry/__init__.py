"""The schema registry: subjects with versions of schemas, and the rules by which schemas may evolve."""
