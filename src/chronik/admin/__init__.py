"""Administration of topics, partitions, configs, nodes and security, independent of the API that requests it.

Kafka's APIs, the REST API and the CLI share these functions. They have types of their own and raise KafkaError with
messages for the user.
"""
