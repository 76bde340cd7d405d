"""One file per Kafka API: it translates between messages and the parts of the node. The rooms hold what they share."""
