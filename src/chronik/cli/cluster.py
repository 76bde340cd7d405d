"""`chronik cluster`: a cluster on this machine, up and down, and how any cluster stands."""

from __future__ import annotations

