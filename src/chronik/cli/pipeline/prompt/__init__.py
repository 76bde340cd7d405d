"""The prompt of `chronik pipeline sql`: lines in, statements out, names completed."""
