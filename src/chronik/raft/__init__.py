"""The Raft consensus algorithm as a deterministic state machine.

`RaftNode.handle(*events)` is the only entry point. It takes events (a tick, a message, a proposal, a completed write)
and returns a `Ready` that lists what to persist, send and apply. The package uses no clock, socket or disk, and the
caller supplies the random number generator, so equal states and events produce equal `Ready` objects.

The driver has five obligations. It starts with a `handle()` call without events, because a restarted node may have
entries to write or to apply.

1. Write the `persist` of a `Ready` durably, in the order of its fields, make it readable through `EntryStorage`, and
   then report `Persisted`. At most one `persist` is outstanding, so writes cannot overtake each other. While it is
   being written, the core collects the next write; a slow disk leads to larger writes instead of more writes.
2. Send `messages` immediately, without waiting for `persist`. The core itself holds back every message that depends on
   durable state. Messages may be lost, duplicated, delayed and reordered.
3. Apply `restore` and then `committed` in order, and report `EntriesApplied`.
4. Send at most one `Tick` per event-loop iteration. If ticks missed during a stall were made up for, the node would
   mistake its own stall for the silence of the leader.
5. Stop the node if a write fails or `handle` raises. The state on disk or in memory is then unknown, and Raft tolerates
   a crash but not a node that continues in an unknown state.
"""
