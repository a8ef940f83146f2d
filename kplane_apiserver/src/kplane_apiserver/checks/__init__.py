"""What objects may hold: metadata, payloads and fields, judged by rules that need nothing else."""
