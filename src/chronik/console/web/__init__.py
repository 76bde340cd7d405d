"""The console that browsers show: its files, and how they are served."""
