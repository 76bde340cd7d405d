"""Generation of encoders and decoders from the message declarations."""
