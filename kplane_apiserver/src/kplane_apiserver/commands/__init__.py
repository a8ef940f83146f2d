"""The commands of this distribution: their options, and their work."""
