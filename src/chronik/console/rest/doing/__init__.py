"""What the operations do: a function for each, by the name that the table has for it."""
