"""Wakeups: wishes judged, joined, deferred, promoted, called off."""
