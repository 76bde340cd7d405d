"""The REST API of the schema registry: Confluent's paths, parameters, responses and errors."""
