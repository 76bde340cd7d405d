"""Users, rights and quotas, asked of a cluster."""
