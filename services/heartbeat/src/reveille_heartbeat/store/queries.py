"""Every named query of the service, loaded once."""

from __future__ import annotations

from reveille_runtime.queries import all_queries

Q = all_queries("reveille_heartbeat.store")
