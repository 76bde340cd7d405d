"""Security administration: users, ACLs and quotas."""
