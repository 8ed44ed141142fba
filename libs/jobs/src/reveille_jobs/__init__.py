"""A service's own jobs, planned by the scheduler: described, registered, executed."""
