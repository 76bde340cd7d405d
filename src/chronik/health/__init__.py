"""Health of a cluster: facts in, problems out. Pure: no clock, files or sockets.

`facts` has the facts, `history` collects samples of them over time, `checks` finds conditions in the facts, and
`engine` turns conditions into problems that do not flicker.
"""
