"""Who may come in, what they may do, and how much of it: mechanisms, rules, ACLs and quotas. Pure, but for what reads
the image: bytes and times are handed in."""
