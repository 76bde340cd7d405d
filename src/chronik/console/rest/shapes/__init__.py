"""What the admin API takes and gives, as JSON: one file for each kind of thing."""
