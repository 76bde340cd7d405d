"""How each command is applied: one function per command, which first refuses all it must refuse and then writes."""
