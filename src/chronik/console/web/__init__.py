"""The web console: its static files, and how they are served."""
