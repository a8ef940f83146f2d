"""What requests ask for: reading, writing, removing, watching, and the answers about the server itself."""
