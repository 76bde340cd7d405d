"""Where commands become the image: on one node alone, or agreed on by a cluster."""
