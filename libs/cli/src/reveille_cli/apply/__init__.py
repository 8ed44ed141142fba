"""`reveille apply` and `reveille export`: a workspace as one file."""
