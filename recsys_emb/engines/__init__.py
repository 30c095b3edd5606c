"""Where work is done that can be cut into pieces: on threads here, or on the workers of a cluster."""
