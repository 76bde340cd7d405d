"""The nodes of a cluster among themselves: one authenticated connection each way, which carries two kinds of things.

A message is bytes that may be lost, and is answered, if at all, by another message: consensus is made of them. A call
is a question with one answer (`calls`), and `call_kinds` lists them all. What they say is the business of the rooms
above. Operators know what is logged here by the name of its first user, `chronik.raft`.
"""
