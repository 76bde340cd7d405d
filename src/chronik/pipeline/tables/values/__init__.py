"""Conversion of JSON values to columns and back, with a rescue column for values that do not fit."""
