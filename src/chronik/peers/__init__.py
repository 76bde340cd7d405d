"""Communication between the nodes of a cluster: an authenticated connection in each direction, for messages and calls.

A message is a sequence of bytes that may be lost; Raft uses messages. A call is a request with one response (see
`calls`); `CallKind` lists all calls. Their contents are defined by the packages that use them. The package logs as
`chronik.raft`.
"""
