"""How each command is applied: one function per command, which first makes all its checks and then writes."""
