"""Request routing: from a request frame to the API handler and back to a response frame."""
