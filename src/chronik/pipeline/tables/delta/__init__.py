"""Tables as Delta, through delta-rs. Nobody outside of `tables` imports from here: they ask `opening`."""
