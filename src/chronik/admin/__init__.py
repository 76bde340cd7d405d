"""What administration does, whoever asks for it: Kafka's APIs, HTTP, the command line. It speaks of topics, partitions,
configs and records in types of its own, and refuses with KafkaError; messages are for those who ask."""
