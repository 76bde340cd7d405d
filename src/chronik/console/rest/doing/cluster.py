"""The cluster as a whole."""

from __future__ import annotations

from chronik.console.rest.call import Call
from chronik.console.rest.doing.overview import cluster_view
from chronik.console.rest.shapes.cluster import ClusterView
from chronik.console.rest.shapes.common import NoQuestion


def show(call: Call, asked: NoQuestion) -> ClusterView:
    return cluster_view(call)
