"""SASL: how a client says who it is. A machine per mechanism, for either side, and what a node does around them."""
