"""From a request frame to the file that handles it, and back."""
