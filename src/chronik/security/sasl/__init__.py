"""SASL authentication: a state machine per mechanism for server and client, session and thread pool of a node."""
