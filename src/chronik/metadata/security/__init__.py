"""Users, ACLs and quotas in the image."""
