"""Parts of the Produce handler: authorization, transactions and details of the response."""
