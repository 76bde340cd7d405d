"""The stores, which turn commands into the image: on one node alone, or agreed on by a cluster."""
