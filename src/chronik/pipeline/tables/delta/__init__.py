"""Delta tables through delta-rs. Only package `tables` imports from here; other packages use `catalog`."""
