"""What happens without a request, or to a whole cluster: removal, garbage, fleets, snapshots."""
