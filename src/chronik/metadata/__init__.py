"""The state of the cluster: commands that change it, the image they are applied to, and the store that keeps both."""
