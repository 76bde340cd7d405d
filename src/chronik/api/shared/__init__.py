"""What several APIs are given, and say in the same words."""
