"""A small blocking Kafka client built on Chronik's own codec. It works with any Kafka broker.

The command line, the tests and the tools use it. Create a `ClusterClient("127.0.0.1:9092")` and pass it to `Producer`,
to the readers in `consumer`, and to the functions of `admin`, `groups` and `offsets`. A request without a usable
response raises ClientError; an error code in a response raises KafkaError.
"""
