"""Raft at work on one node: `raft` says what to do, and here it is done, on one event loop.

`driver` hands events to the core and has its instructions carried out: by `writing` (on disk, as `storage` keeps it),
`messenger` (to the peers), `applying` and `snapshotting` (with the state machine). Whoever asks for something waits in
`waiters`; `forwarding` asks the leader when that is another node. Operators know what is logged here as `chronik.raft`.
"""
