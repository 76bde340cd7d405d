"""Encoders and decoders as source, made from the declarations of messages."""
