"""Collection of a node's health facts, and exchange of them with the controller."""
