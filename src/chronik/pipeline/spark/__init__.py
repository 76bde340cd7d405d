"""A Spark that just works: the Java and the folders it runs on, sessions, a server that stays, tasks, and a doctor."""
