"""How storage backends and other plugins are described, found, loaded and configured."""
