"""What makes pages, pictures and the site of them: `make docs`."""
