"""A small blocking Kafka client on our own codec, for the command line, tests and tools. Works with any Kafka broker.

Start with `Cluster("127.0.0.1:9092")`; hand it to `Producer`, to the readers in `consumer`, and to the functions of
`admin`, `groups` and `offsets`. Errors are ClientError (nothing usable came back) and KafkaError (a broker said no).
"""
