"""`chronik pipeline`: land topics in tables, query and audit them."""
