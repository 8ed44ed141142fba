"""The local stack: docker-compose.yml run as processes of this machine, without Docker."""
