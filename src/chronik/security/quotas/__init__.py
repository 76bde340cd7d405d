"""How much users, clients and addresses may ask of a node: Kafka's keys and its order of precedence. Pure: times are
handed in."""
