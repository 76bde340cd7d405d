"""Write-ahead logs: numbered records that survive a power cut once synced, and snapshots that let them be short."""
