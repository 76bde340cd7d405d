"""Creation of a node's security components: authentication, TLS, authorization, and the first user."""
