"""The same server on several machines, over Ray Serve (docs/cluster.md)."""
