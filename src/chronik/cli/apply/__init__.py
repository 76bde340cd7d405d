"""`chronik apply` and `chronik export`: declarative cluster configuration in a TOML file."""
