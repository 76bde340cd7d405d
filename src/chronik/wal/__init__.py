"""Write-ahead logs of numbered records, and the snapshots that allow them to be truncated."""
