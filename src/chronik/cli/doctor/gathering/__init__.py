"""Where facts come from: files, the system, sockets. Nothing here changes anything."""
