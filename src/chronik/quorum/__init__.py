"""The Raft driver of a node: runs the core of `chronik.raft` on an event loop with real disks and networks.

`driver` passes events to the core and executes its instructions through `storage` (disk writes), `messenger`
(messages to peers), `applier` and `snapshot_manager` (state machine). Requests wait for their outcomes in `waiters`,
and `forwarder` sends proposals to a leader on another node. The package logs as `chronik.raft`.
"""
