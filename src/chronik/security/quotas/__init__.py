"""Client quotas for users, client ids and IP addresses, with the keys and precedence of Kafka. No I/O."""
