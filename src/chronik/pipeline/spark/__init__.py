"""Spark set-up: Java and SPARK_HOME, sessions, a long-running Connect server, task execution and environment checks."""
