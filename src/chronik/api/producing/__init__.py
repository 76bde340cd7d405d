"""What Produce is made of."""
