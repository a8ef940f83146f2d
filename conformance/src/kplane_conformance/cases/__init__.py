"""The cases, one module per subject. A module's name decides the group that its cases are counted in."""
