"""AddRaftVoter (API key 80): makes a node a voter of the metadata quorum.

A node that is not a member of the cluster yet is added first, at the given address. The response is sent when the node
is a voter or, if `ack_when_committed` is false, as soon as the change is accepted.
"""

from __future__ import annotations

from chronik.admin.nodes import VoterKey, add_voter
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


async def handle(services: Services, request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    address = next(((listener.host, listener.port) for listener in request.listeners), None)
    try:
        await add_voter(
            services.store,
            services.node_id,
            VoterKey(request.voter_id, request.voter_directory_id),
            address,
            cluster_id=request.cluster_id,
            seconds=request.timeout_ms / 1000,
            wait_until_voter=request.ack_when_committed,
        )
    except KafkaError as error:
        return AddRaftVoterResponse(**build_error_fields(error))
    return AddRaftVoterResponse(**build_error_fields(None))
