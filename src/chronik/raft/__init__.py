"""Consensus: one log of entries that every node agrees on.

The core is pure. `RaftNode.handle(*events)` is its only entrance: events in (a tick, a message, a proposal, a finished
write), a `Ready` out (what to persist, what to send, what to apply). Same state and same events, same `Ready`: there is
no clock, no socket and no disk in here, and randomness is handed in.

The driver around it owes it five things (and begins with a `handle()` without events: a node that restarts may have
something to write or to apply at once):

1. It writes the `persist` of a `Ready` durably, in the order of its fields, lets `Storage` serve what was written, and
   then reports `Persisted`. There is at most one outstanding `persist`: what is durable has one answer at any time, and
   no two writes can overtake each other. While it is being written the core goes on, and gathers what the next one
   will hold, so that a slow disk makes larger writes and not more of them.
2. It sends `messages` at once, without waiting for `persist`: those that promise something about the disk are held
   back by the core itself until the promise is true. Messages may be lost, repeated, delayed and reordered.
3. It applies `restore` and then `committed` in order, and reports `Applied`.
4. It gives at most one `Tick` per turn of its loop: time lost in a stall is not made up for, or a stalled loop would
   see its own stall as the silence of a leader.
5. When a write fails, or `handle` raises, it stops the node: what is on disk, or in memory, is then unknown, and must
   not be built upon. A crash is what the whole algorithm is made for; a node that goes on in doubt is not.
"""
