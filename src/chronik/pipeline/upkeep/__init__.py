"""Tables looked after: files joined and taken away, dead letters tried again, rows put back into topics."""
