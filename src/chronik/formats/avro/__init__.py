"""Avro: the decoder and the encoder of values."""
