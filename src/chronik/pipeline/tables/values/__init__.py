"""What becomes of JSON values: their columns, what has no place in these, and the way back."""
