"""RemoveRaftVoter (API key 81): removes a node's vote; the node remains an observer of the metadata log.

The response is sent when the change has taken effect.
"""

from __future__ import annotations

from chronik.admin.nodes import VoterKey, remove_voter
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


async def handle(
    services: Services, request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    voter = VoterKey(request.voter_id, request.voter_directory_id)
    try:
        await remove_voter(services.store, services.node_id, voter, cluster_id=request.cluster_id)
    except KafkaError as error:
        return RemoveRaftVoterResponse(**build_error_fields(error))
    return RemoveRaftVoterResponse(**build_error_fields(None))
